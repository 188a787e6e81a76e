// The dispatcher hook: a boxed kernel in front of every operator that has a contract.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace infini {

class HookedOverload;

// Attaches to every operator of the contracts that is registered and not yet hooked. Idempotent.
// Returns the names of all operators that are hooked now.
std::vector<std::string> install_hooks();

// Detaches, except where a wrap still needs the operator. No other thread may be inside a hooked operator.
void uninstall_hooks();

// The hook of one overload, nullptr where there is none.
std::shared_ptr<const HookedOverload> hooked_overload(std::string_view name, std::string_view overload);

// Attaches to one operator for calls inside an activating policy scope only; stays until the process ends.
void wrap_operator(std::string_view name);

}  // namespace infini
