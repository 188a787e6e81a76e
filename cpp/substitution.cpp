#include "substitution.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "rearrange.h"

namespace infini {
namespace {

std::vector<int64_t> canonical_strides(at::IntArrayRef sizes) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
        strides[dim] = stride;
        stride *= std::max<int64_t>(sizes[dim], 1);
    }
    return strides;
}

// By address, not by storage: weak references to one tensor have storages of their own.
bool same_view(const at::Tensor& a, const at::Tensor& b) {
    return a.is_same(b) || (a.const_data_ptr() == b.const_data_ptr() && a.device() == b.device() &&
                            a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides());
}

bool writes_back(Action action) {
    return action == Action::CopyInOut;
}

bool keep_private_format(const at::Tensor& tensor) {
#ifdef INFINI_TORCH_NPU
    return has_private_format(tensor);
#else
    return false;
#endif
}

}  // namespace

Substitutions::Substitutions(at::ArrayRef<Operand> operands, at::ArrayRef<Decision> decisions, Execution execution)
    : execution_(execution), chosen_(operands.size(), -1) {
    const StagedCopies ours;
    // Copies belong to no autograd graph: gradients are the hooked operator's own business, which saved the originals.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (size_t i = 0; i < operands.size(); ++i) {
        const at::Tensor& original = *operands[i].tensor;
        const Action action = decisions[i].action;
        if (action == Action::Pass || keep_private_format(original)) {
            continue;
        }
        if (const Substitution* known = find(original, action)) {
            chosen_[i] = static_cast<int32_t>(known - substitutions_.data());
            continue;
        }
        chosen_[i] = static_cast<int32_t>(substitutions_.size());
        substitutions_.push_back({original, make(original, decisions[i]), action, decisions[i].site});
    }
}

Substitutions::Substitutions(at::ArrayRef<Operand> operands, at::ArrayRef<Decision> decisions,
                             const CapturedCall& captured)
    : execution_{0, true}, chosen_(operands.size(), -1) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // One copy a buffer, in the order in which they were captured: number and kind of tasks must be the same.
    c10::SmallVector<int32_t, 8> of_staging(captured.stagings.size(), -1);
    for (size_t i = 0; i < operands.size(); ++i) {
        const at::Tensor& original = *operands[i].tensor;
        if (const StagedArgument* staged = captured.argument(operands[i].position, operands[i].element)) {
            int32_t& known = of_staging[staged->staging];
            if (known < 0) {
                const Staging& staging = captured.stagings[staged->staging];
                const c10::DeviceGuard guard(original.device());
                copy_strided(staging.buffer, original);
                known = static_cast<int32_t>(substitutions_.size());
                substitutions_.push_back({original, staging.buffer, staging.action, staging.site});
            }
            chosen_[i] = known;
        } else if (decisions[i].action != Action::Pass && !keep_private_format(original)) {
            chosen_[i] = static_cast<int32_t>(substitutions_.size());
            substitutions_.push_back({original, make(original, decisions[i]), decisions[i].action, decisions[i].site});
        }
    }
}

void Substitutions::stage(at::ArrayRef<Operand> operands, CapturedCall& captured) const {
    c10::SmallVector<int32_t, 8> staging_of(substitutions_.size(), -1);
    for (size_t i = 0; i < operands.size(); ++i) {
        if (chosen_[i] < 0) {
            continue;
        }
        const Substitution& substitution = substitutions_[chosen_[i]];
        if (substitution.action != Action::Copy && substitution.action != Action::CopyInOut) {
            continue;
        }
        int32_t& staging = staging_of[chosen_[i]];
        if (staging < 0) {
            staging = static_cast<int32_t>(captured.stagings.size());
            captured.stagings.push_back({substitution.stand_in, substitution.action, substitution.site});
        }
        captured.arguments.push_back({operands[i].position, operands[i].element, static_cast<size_t>(staging),
                                      operands[i].tensor->strides().vec()});
    }
}

void Substitutions::keep(uint64_t graph) const {
    for (const Substitution& substitution : substitutions_) {
        if (substitution.action == Action::Copy || substitution.action == Action::CopyInOut) {
            keep_with_graph(graph, substitution.stand_in);
        }
    }
}

const at::Tensor& Substitutions::stand_in(at::ArrayRef<Operand> operands, size_t index) const {
    return chosen_[index] < 0 ? *operands[index].tensor : substitutions_[chosen_[index]].stand_in;
}

// The same view given twice gets one copy: cheaper, and an operator that looks at aliases sees the same ones.
const Substitutions::Substitution* Substitutions::find(const at::Tensor& original, Action action) const {
    for (const Substitution& known : substitutions_) {
        if (known.action == action && same_view(known.original, original)) {
            return &known;
        }
    }
    return nullptr;
}

at::Tensor Substitutions::make(const at::Tensor& original, Decision decision) {
    switch (decision.action) {
        case Action::Restride:
            return original.as_strided(original.sizes(), canonical_strides(original.sizes()),
                                       original.storage_offset());
        case Action::Copy:
        case Action::CopyInOut:
            return call_rearrange(original, std::string_view(std::string(hook_site(decision.site))));
        default: {
            const c10::DeviceGuard guard(original.device());
            return empty_contiguous(original);
        }
    }
}

void Substitutions::put_in(at::ArrayRef<Operand> operands, c10::IValue* arguments) const {
    for (size_t i = 0; i < operands.size(); ++i) {
        if (chosen_[i] < 0) {
            continue;
        }
        c10::IValue& argument = arguments[operands[i].position];
        const at::Tensor& stand_in = substitutions_[chosen_[i]].stand_in;
        if (operands[i].element < 0) {
            argument = stand_in;
        } else if (argument.isTensorList()) {
            // A list is shared with the caller: replace it, do not write into it.
            c10::List<at::Tensor> list = argument.toTensorList().copy();
            list.set(operands[i].element, stand_in);
            argument = std::move(list);
        } else {
            c10::List<c10::IValue> list = argument.toList().copy();
            list.set(operands[i].element, stand_in);
            argument = std::move(list);
        }
    }
}

void Substitutions::copy_back() const {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const Substitution& substitution : substitutions_) {
        if (writes_back(substitution.action)) {
            const c10::DeviceGuard guard(substitution.original.device());
            copy_strided(substitution.original, substitution.stand_in);
            hook_copied_back(substitution.site, substitution.original.nbytes(), execution_);
        }
    }
}

const at::Tensor& Substitutions::original_of(const at::Tensor& tensor) const {
    for (const Substitution& substitution : substitutions_) {
        if (tensor.is_same(substitution.stand_in) ||
            (writes_back(substitution.action) && tensor.defined() && same_view(tensor, substitution.stand_in))) {
            return substitution.original;
        }
    }
    return tensor;
}

void Substitutions::restore_results(c10::IValue* results, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
        c10::IValue& result = results[i];
        if (result.isTensor()) {
            const at::Tensor& tensor = result.toTensor();
            const at::Tensor& original = original_of(tensor);
            if (!original.is_same(tensor)) {
                result = original;
            }
        } else if (result.isTensorList()) {
            c10::List<at::Tensor> list = result.toTensorList();
            for (size_t element = 0; element < list.size(); ++element) {
                const at::Tensor tensor = list.get(element);
                list.set(element, original_of(tensor));
            }
        }
    }
}

}  // namespace infini
