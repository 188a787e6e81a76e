#include "hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "overload.h"
#include "refusal.h"

namespace infini {
namespace {

// Sits at BackendSelect: below autograd and Python modes (fake tracing keeps the plain operator), above every backend.
class Hook final : public c10::OperatorKernel {
public:
    explicit Hook(std::shared_ptr<const HookedOverload> overload) : overload_(std::move(overload)) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
        const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
        if (overload_->awake()) {
            overload_->call(op, below, stack);
        } else {
            op.redispatchBoxed(below, stack);
        }
    }

private:
    const std::shared_ptr<const HookedOverload> overload_;
};

struct Registration {
    std::vector<torch::Library> libraries;
    std::map<std::string, std::shared_ptr<const HookedOverload>, std::less<>> overloads;
    // True between install and uninstall; otherwise only calls in an activating scope are looked at.
    std::shared_ptr<std::atomic<bool>> always = std::make_shared<std::atomic<bool>>(false);
    bool wrapped = false;
};

struct Registry {
    std::mutex mutex;
    std::map<std::string, Registration, std::less<>> operators;
};

Registry& registry() {
    static auto* registry = new Registry();  // never destroyed: the dispatcher may be gone by then
    return *registry;
}

std::vector<std::string> argument_names(const c10::FunctionSchema& schema) {
    std::vector<std::string> names;
    for (const auto& argument : schema.arguments()) {
        names.push_back(argument.name());
    }
    return names;
}

std::string full_name(const c10::OperatorName& name) {
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// What is to be said once the registry's mutex is free again: a listener may call back.
using Notices = std::vector<std::string>;

void say_all(const Notices& notices) {
    for (const auto& notice : notices) {
        say(30, rust_str(notice));
    }
}

// Registers a hook for one overload. False if another kernel sits at BackendSelect already.
bool attach(const c10::OperatorHandle& op, Registration& registration, Notices& notices) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect)) {
        notices.push_back("operator " + full_name(op.operator_name()) +
                          " has a BackendSelect kernel of its own; infini_rearrange does not hook it");
        return false;
    }
    rust::Vec<rust::String> names;
    for (const auto& name : argument_names(op.schema())) {
        names.push_back(name);
    }
    const Attached attached = hook_attach(op.operator_name().name, names);
    const auto overload = std::make_shared<const HookedOverload>(
        attached.id, std::vector<uint32_t>(attached.positions.begin(), attached.positions.end()), registration.always);
    const std::string ns(op.operator_name().getNamespace().value());
    torch::Library library(torch::Library::IMPL, ns, c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
    library.impl(full_name(op.operator_name()).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Hook>(overload)));
    registration.overloads.emplace(op.operator_name().overload_name, overload);
    registration.libraries.push_back(std::move(library));
    return true;
}

// All overloads of one operator; none where it is not registered.
std::vector<c10::OperatorHandle> overloads(std::string_view name) {
    std::vector<c10::OperatorHandle> found;
    for (const auto& candidate : c10::Dispatcher::singleton().getAllOpNames()) {
        if (candidate.name == name) {
            if (const auto op = c10::Dispatcher::singleton().findSchema(candidate)) {
                found.push_back(*op);
            }
        }
    }
    return found;
}

// With the registry's mutex held.
Registration* ensure(Registry& all, const std::string& name, Notices& notices) {
    if (const auto known = all.operators.find(name); known != all.operators.end()) {
        return &known->second;
    }
    Registration registration;
    rust::Vec<rust::String> arguments;
    for (const auto& op : overloads(name)) {
        attach(op, registration, notices);
        for (const auto& argument : argument_names(op.schema())) {
            arguments.push_back(argument);
        }
    }
    if (!arguments.empty()) {
        if (const std::string unknown(hook_unknown_arguments(name, arguments)); !unknown.empty()) {
            notices.push_back(unknown);
        }
    }
    if (registration.libraries.empty()) {
        return nullptr;
    }
    return &all.operators.emplace(name, std::move(registration)).first->second;
}

}  // namespace

std::vector<std::string> install_hooks() {
    Registry& all = registry();
    std::vector<std::string> hooked;
    rust::Vec<rust::String> missing;
    Notices notices;
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        for (const auto& target : hook_targets()) {
            const std::string name(target);
            if (Registration* registration = ensure(all, name, notices)) {
                registration->always->store(true);
                hooked.push_back(name);
            } else if (overloads(name).empty()) {
                missing.push_back(target);
            }
        }
    }
    say_all(notices);
    hook_not_registered(missing);
    return hooked;
}

void uninstall_hooks() {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (auto entry = all.operators.begin(); entry != all.operators.end();) {
        entry->second.always->store(false);
        entry = entry->second.wrapped ? std::next(entry) : all.operators.erase(entry);
    }
}

std::shared_ptr<const HookedOverload> hooked_overload(std::string_view name, std::string_view overload) {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto operators = all.operators.find(name);
    if (operators == all.operators.end()) {
        return nullptr;
    }
    const auto found = operators->second.overloads.find(overload);
    return found == operators->second.overloads.end() ? nullptr : found->second;
}

void wrap_operator(std::string_view name) {
    Registry& all = registry();
    Notices notices;
    bool wrapped = false;
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        if (Registration* registration = ensure(all, std::string(name), notices)) {
            registration->wrapped = wrapped = true;
        }
    }
    say_all(notices);
    TORCH_CHECK(wrapped, "infini_rearrange.wrap: ", name,
                overloads(name).empty() ? " is not registered; import the package that defines it first"
                                        : " cannot be hooked, see the log");
}

}  // namespace infini
