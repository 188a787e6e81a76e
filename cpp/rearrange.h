// Copies between layouts: the kernels behind infini::rearrange.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

namespace infini {

// Writes src into dst; same shape, dtype and device, checked by the caller.
void copy_strided(const at::Tensor& dst, const at::Tensor& src);

// An uninitialized contiguous tensor of the same shape, dtype and device.
at::Tensor empty_contiguous(const at::Tensor& like);

// Calls infini::rearrange through the dispatcher, so that it is counted and profilers see it.
at::Tensor call_rearrange(const at::Tensor& self, std::string_view site);

#ifdef INFINI_TORCH_NPU
// True for a layout that is torch_npu's own business (NZ and other private formats).
bool has_private_format(const at::Tensor& tensor);
// dst and src on one NPU, both in a base format.
void copy_strided_npu(const at::Tensor& dst, const at::Tensor& src);
#endif

}  // namespace infini
