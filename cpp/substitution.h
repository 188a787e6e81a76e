// The tensors an operator gets in place of the caller's, for one call.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "arguments.h"
#include "capture.h"

namespace infini {

// One tensor of the call: where it stands on the stack and what Rust has to know of it.
// The pointer is into the stack: it holds until the stack is changed.
struct Operand {
    const at::Tensor* tensor;
    uint32_t position;
    // Index within a tensor list, or -1 for a plain argument.
    int64_t element;
};

class Substitutions {
public:
    // Makes what the decisions ask for. Launches the copies; throws before anything of the caller's is touched.
    Substitutions(at::ArrayRef<Operand> operands, at::ArrayRef<Decision> decisions, Execution execution);

    // For a call that updates a captured one: the same copies into the same buffers, and what the decisions ask for
    // without a copy. `captured` has been compared with the operands.
    Substitutions(at::ArrayRef<Operand> operands, at::ArrayRef<Decision> decisions, const CapturedCall& captured);

    // The tensor to hand on for an operand.
    const at::Tensor& stand_in(at::ArrayRef<Operand> operands, size_t index) const;

    // Puts the stand-ins where the caller's tensors stand.
    void put_in(at::ArrayRef<Operand> operands, c10::IValue* arguments) const;

    // Notes the buffers of the copies in the captured call, which keeps them.
    void stage(at::ArrayRef<Operand> operands, CapturedCall& captured) const;

    // Keeps the copies alive as long as the graph that they are captured into.
    void keep(uint64_t graph) const;

    // The caller's tensor for a stand-in that the operator returned; any other tensor itself.
    const at::Tensor& original_of(const at::Tensor& tensor) const;

    // After the operator: brings what it wrote back into the caller's tensors.
    void copy_back() const;

    // Operators return what they were given: give the caller its own tensors.
    void restore_results(c10::IValue* results, size_t count) const;

private:
    struct Substitution {
        at::Tensor original;
        at::Tensor stand_in;
        Action action;
        uint32_t site;
    };

    const Substitution* find(const at::Tensor& original, Action action) const;
    static at::Tensor make(const at::Tensor& original, Decision decision);

    Execution execution_;
    c10::SmallVector<Substitution, 8> substitutions_;
    // Per operand: index into substitutions_, or -1.
    c10::SmallVector<int32_t, 32> chosen_;
};

}  // namespace infini
