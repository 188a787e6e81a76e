// A call whose copies are made before its task group opens: torch_npu's graph handlers have a place for that.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace infini {

// Makes the copies of a call and keeps them with the graph under capture. `positions` are those of the tensors in the
// schema, `elements` their places in a tensor list, or -1. Returns what to hand on instead of each tensor, or nothing
// where the operator is not hooked. Raises NonContiguousError where the policy refuses.
std::vector<at::Tensor> prepare_call(std::string_view name, std::string_view overload, at::TensorList tensors,
                                     at::IntArrayRef positions, at::IntArrayRef elements);

// After the group: brings back what the operator wrote. Returns the results with the caller's own tensors for
// stand-ins.
std::vector<at::Tensor> finish_call(at::TensorList results);

// Forgets a prepared call that did not run.
void abandon_call();

}  // namespace infini
