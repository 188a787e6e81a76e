#include "overload.h"

#include <algorithm>

#include "refusal.h"

namespace infini {
namespace {

[[noreturn]] void refuse_update(const c10::OperatorName& op, const std::string& argument, const std::string& what) {
    TORCH_CHECK(false, "infini_rearrange: ", op.name, " updates a task group, and its argument ", argument, " ", what,
                ". A copy made now would be freed while replays still read it: call infini_rearrange.contiguous(x, "
                "site) before graph_task_group_begin, keep the result as long as the graph, and hand it to the "
                "operator, when capturing and when updating");
}

std::string argument_name(const c10::OperatorHandle& op, const Operand& operand) {
    const std::string& name = op.schema().arguments()[operand.position].name();
    return operand.element < 0 ? name : name + "[" + std::to_string(operand.element) + "]";
}

std::string layout(at::IntArrayRef sizes, at::IntArrayRef strides) {
    return c10::str(sizes, " strides ", strides);
}

// What the captured copy's buffer is right for, and what stands there now, must be the same but for the address.
void check_staged(const c10::OperatorHandle& op, const CapturedCall& captured, at::ArrayRef<Operand> operands) {
    for (const StagedArgument& staged : captured.arguments) {
        const at::Tensor& buffer = captured.stagings[staged.staging].buffer;
        const auto operand = std::find_if(operands.begin(), operands.end(), [&](const Operand& candidate) {
            return candidate.position == staged.position && candidate.element == staged.element;
        });
        const std::string was = c10::str("was captured as ", buffer.scalar_type(), " ",
                                         layout(buffer.sizes(), at::IntArrayRef(staged.strides)));
        if (operand == operands.end()) {
            refuse_update(op.operator_name(), op.schema().arguments()[staged.position].name(),
                          was + " and is now missing");
        }
        const at::Tensor& now = *operand->tensor;
        if (now.sizes() != buffer.sizes() || now.strides() != at::IntArrayRef(staged.strides) ||
            now.scalar_type() != buffer.scalar_type()) {
            refuse_update(op.operator_name(), argument_name(op, *operand),
                          was + c10::str(" and is now ", now.scalar_type(), " ", layout(now.sizes(), now.strides())));
        }
        for (const Operand& other : operands) {
            const StagedArgument* twin = captured.argument(other.position, other.element);
            if (twin != nullptr && twin->staging == staged.staging &&
                other.tensor->const_data_ptr() != now.const_data_ptr()) {
                refuse_update(
                    op.operator_name(), argument_name(op, other),
                    "was captured as the same tensor as " + argument_name(op, *operand) + " and is now another one");
            }
        }
    }
}

}  // namespace

bool HookedOverload::Operands::add(const at::Tensor& tensor, uint32_t slot, uint32_t position, int64_t element) {
    if (!tensor.defined()) {
        return true;
    }
    if (!has_memory(tensor)) {
        return false;
    }
    tensors.push_back({&tensor, position, element});
    described.push_back(describe(tensor, slot));
    return true;
}

// Gathers the tensors that have a contract. False where there is nothing to decide.
bool HookedOverload::collect(const c10::IValue* arguments, Operands& operands) const {
    for (uint32_t slot = 0; slot < positions_.size(); ++slot) {
        const uint32_t position = positions_[slot];
        const c10::IValue& argument = arguments[position];
        if (argument.isTensor()) {
            if (!operands.add(argument.toTensor(), slot, position, -1)) {
                return false;
            }
        } else if (argument.isList()) {
            const auto list = argument.toListRef();
            for (size_t element = 0; element < list.size(); ++element) {
                if (list[element].isTensor() &&
                    !operands.add(list[element].toTensor(), slot, position, static_cast<int64_t>(element))) {
                    return false;
                }
            }
        }
    }
    return !operands.tensors.empty();
}

bool HookedOverload::decide(const Operands& operands, Execution execution, Decisions& decisions) const {
    decisions.assign(operands.tensors.size(), Decision{Action::Pass, 0});
    const Decided decided =
        hook_decide(id_, rust::Slice<const TensorArg>(operands.described.data(), operands.described.size()), execution,
                    rust::Slice<Decision>(decisions.data(), decisions.size()));
    if (decided.verdict == Verdict::Refuse) {
        raise_not_contiguous(decided.message);
    }
    return decided.verdict == Verdict::Act;
}

void HookedOverload::call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) const {
    const size_t count = op.schema().arguments().size();
    c10::IValue* const arguments = stack->data() + (stack->size() - count);
    Operands operands;
    if (!collect(arguments, operands)) {
        op.redispatchBoxed(below, stack);
        return;
    }
    const bool on_npu = operands.tensors.front().tensor->is_privateuseone();
    OpenGroup* const group = on_npu ? open_group() : nullptr;
    const auto run = [&](const Substitutions& substitutions) {
        substitutions.put_in(operands.tensors, arguments);
        op.redispatchBoxed(below, stack);
        substitutions.copy_back();
        const size_t results = op.schema().returns().size();
        substitutions.restore_results(stack->data() + (stack->size() - results), results);
    };
    if (group != nullptr && group->updates()) {
        run(reissue(op, operands, *group));
        return;
    }
    const Execution execution = execution_of(*operands.tensors.front().tensor);
    Decisions decisions;
    const bool act = decide(operands, execution, decisions);
    CapturedCall* const captured = group == nullptr ? nullptr : &group->add(op.operator_name());
    if (!act) {
        op.redispatchBoxed(below, stack);
        return;
    }
    const Substitutions substitutions(operands.tensors, decisions, execution);
    if (captured != nullptr) {
        substitutions.stage(operands.tensors, *captured);
    }
    run(substitutions);
}

// An update issues the call once more, and what it launches takes the place of what was captured. Copies must go where
// they went then; a copy that was not captured has no place to go.
Substitutions HookedOverload::reissue(const c10::OperatorHandle& op, const Operands& operands, OpenGroup& group) const {
    static const CapturedCall nothing{c10::OperatorName("", "")};
    const CapturedCall* const found = group.next(op.operator_name());
    const CapturedCall& captured = found == nullptr ? nothing : *found;
    check_staged(op, captured, operands.tensors);
    Operands staged = operands;
    for (size_t i = 0; i < staged.tensors.size(); ++i) {
        const Operand& operand = operands.tensors[i];
        if (const StagedArgument* argument = captured.argument(operand.position, operand.element)) {
            staged.described[i] = describe(captured.stagings[argument->staging].buffer, operands.described[i].slot);
        }
    }
    Decisions decisions;
    decide(staged, Execution{0, true}, decisions);
    for (size_t i = 0; i < decisions.size(); ++i) {
        if (decisions[i].action == Action::Copy || decisions[i].action == Action::CopyInOut) {
            const at::Tensor& tensor = *operands.tensors[i].tensor;
            refuse_update(op.operator_name(), argument_name(op, operands.tensors[i]),
                          "is " + layout(tensor.sizes(), tensor.strides()) +
                              ", which needs a copy that was not captured with the group");
        }
    }
    return Substitutions(operands.tensors, decisions, captured);
}

Substitutions HookedOverload::prepare(at::ArrayRef<at::Tensor> tensors, at::ArrayRef<int64_t> positions,
                                      at::ArrayRef<int64_t> elements, std::vector<at::Tensor>& stand_ins) const {
    stand_ins = tensors.vec();
    Operands operands;
    c10::SmallVector<size_t, 32> index_of;
    bool real = true;
    for (size_t i = 0; i < tensors.size() && real; ++i) {
        const auto slot = std::find(positions_.begin(), positions_.end(), static_cast<uint32_t>(positions[i]));
        if (slot == positions_.end()) {
            continue;
        }
        const size_t before = operands.tensors.size();
        real = operands.add(tensors[i], static_cast<uint32_t>(slot - positions_.begin()),
                            static_cast<uint32_t>(positions[i]), elements[i]);
        if (operands.tensors.size() > before) {
            index_of.push_back(i);
        }
    }
    if (!real || operands.tensors.empty()) {
        return Substitutions({}, {}, Execution{0, false});
    }
    const Execution execution = execution_of(*operands.tensors.front().tensor);
    Decisions decisions;
    decide(operands, execution, decisions);
    Substitutions substitutions(operands.tensors, decisions, execution);
    substitutions.keep(execution.graph);
    for (size_t i = 0; i < operands.tensors.size(); ++i) {
        stand_ins[index_of[i]] = substitutions.stand_in(operands.tensors, i);
    }
    return substitutions;
}

}  // namespace infini
