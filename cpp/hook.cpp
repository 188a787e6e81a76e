#include "hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "refusal.h"
#include "substitution.h"

namespace infini {
namespace {

// Sits at BackendSelect: below autograd and Python modes (fake tracing keeps the plain operator), above every backend.
class Hook final : public c10::OperatorKernel {
public:
    Hook(uint32_t id, std::vector<uint32_t> positions, std::shared_ptr<std::atomic<bool>> always)
        : id_(id), positions_(std::move(positions)), always_(std::move(always)) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
        const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
        if (!always_->load(std::memory_order_relaxed) && !scope_active()) {
            op.redispatchBoxed(below, stack);
            return;
        }
        const size_t count = op.schema().arguments().size();
        c10::SmallVector<Operand, 32> operands;
        c10::SmallVector<TensorArg, 32> described;
        if (!collect(stack->data() + (stack->size() - count), operands, described)) {
            op.redispatchBoxed(below, stack);
            return;
        }
        c10::SmallVector<Decision, 32> decisions(operands.size(), Decision{Action::Pass, 0});
        const Decided decided = hook_decide(id_, rust::Slice<const TensorArg>(described.data(), described.size()),
                                            rust::Slice<Decision>(decisions.data(), decisions.size()));
        if (decided.verdict == Verdict::Refuse) {
            raise_not_contiguous(decided.message);
        }
        if (decided.verdict == Verdict::Pass) {
            op.redispatchBoxed(below, stack);
            return;
        }
        const Substitutions substitutions(operands, decisions);
        substitutions.put_in(operands, stack->data() + (stack->size() - count));
        op.redispatchBoxed(below, stack);
        substitutions.copy_back();
        const size_t results = op.schema().returns().size();
        substitutions.restore_results(stack->data() + (stack->size() - results), results);
    }

private:
    // Gathers the tensors that have a contract. False where there is nothing to decide: no tensor, or a call that only
    // traces (a single fake or meta tensor makes it one).
    bool collect(const c10::IValue* arguments, c10::SmallVectorImpl<Operand>& operands,
                 c10::SmallVectorImpl<TensorArg>& described) const {
        for (uint32_t slot = 0; slot < positions_.size(); ++slot) {
            const uint32_t position = positions_[slot];
            const c10::IValue& argument = arguments[position];
            if (argument.isTensor()) {
                if (!add(argument.toTensor(), slot, position, -1, operands, described)) {
                    return false;
                }
            } else if (argument.isList()) {
                const auto list = argument.toListRef();
                for (size_t element = 0; element < list.size(); ++element) {
                    if (list[element].isTensor() && !add(list[element].toTensor(), slot, position,
                                                         static_cast<int64_t>(element), operands, described)) {
                        return false;
                    }
                }
            }
        }
        return !operands.empty();
    }

    static bool add(const at::Tensor& tensor, uint32_t slot, uint32_t position, int64_t element,
                    c10::SmallVectorImpl<Operand>& operands, c10::SmallVectorImpl<TensorArg>& described) {
        if (!tensor.defined()) {
            return true;
        }
        if (!has_memory(tensor)) {
            return false;
        }
        operands.push_back({&tensor, position, element});
        described.push_back(describe(tensor, slot));
        return true;
    }

    const uint32_t id_;
    const std::vector<uint32_t> positions_;
    const std::shared_ptr<std::atomic<bool>> always_;
};

struct Registration {
    std::vector<torch::Library> libraries;
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
    std::vector<uint32_t> positions(attached.positions.begin(), attached.positions.end());
    const std::string ns(op.operator_name().getNamespace().value());
    torch::Library library(torch::Library::IMPL, ns, c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
    library.impl(full_name(op.operator_name()).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Hook>(
                                                            attached.id, std::move(positions), registration.always)));
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
