// One overload of a hooked operator: what happens to a call of it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <memory>
#include <vector>

#include "capture.h"
#include "substitution.h"

namespace infini {

class HookedOverload {
public:
    // `id` and `positions` as hook_attach gave them; `always` is false while only activating scopes want the hook.
    HookedOverload(uint32_t id, std::vector<uint32_t> positions, std::shared_ptr<std::atomic<bool>> always)
        : id_(id), positions_(std::move(positions)), always_(std::move(always)) {}

    // Whether calls of this thread are to be looked at.
    bool awake() const { return always_->load(std::memory_order_relaxed) || scope_active(); }

    // Decides, substitutes, calls the kernel below, and brings results back.
    void call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) const;

    // Decides about a call that is to be captured, before its group opens, and makes the copies. The tensors stand at
    // `positions` and `elements` (see Operand) of the call. Raises NonContiguousError where the policy refuses.
    Substitutions prepare(at::ArrayRef<at::Tensor> tensors, at::ArrayRef<int64_t> positions,
                          at::ArrayRef<int64_t> elements, std::vector<at::Tensor>& stand_ins) const;

private:
    // The operands of a call, and Rust's view of them.
    struct Operands {
        c10::SmallVector<Operand, 32> tensors;
        c10::SmallVector<TensorArg, 32> described;

        // False for a call that only traces: a single fake or meta tensor makes it one.
        bool add(const at::Tensor& tensor, uint32_t slot, uint32_t position, int64_t element);
    };
    using Decisions = c10::SmallVector<Decision, 32>;

    bool collect(const c10::IValue* arguments, Operands& operands) const;
    // Whether anything has to be done; raises for a refusal.
    bool decide(const Operands& operands, Execution execution, Decisions& decisions) const;
    Substitutions reissue(const c10::OperatorHandle& op, const Operands& operands, OpenGroup& group) const;

    const uint32_t id_;
    const std::vector<uint32_t> positions_;
    const std::shared_ptr<std::atomic<bool>> always_;
};

}  // namespace infini
