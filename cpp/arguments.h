// Tensors as Rust sees them: sizes, strides, offset, element size.
#pragma once

#include <ATen/core/Tensor.h>

#include "infini-rearrange/src/ffi/bridge.rs.h"

namespace infini {

// True for a strided tensor with memory behind it: not fake, not meta, not functional, not sparse, nested or quantized.
// Only such a tensor has a layout to decide about.
bool has_memory(const at::Tensor& tensor);

// The returned pointers live as long as the tensor and its sizes do.
TensorArg describe(const at::Tensor& tensor, uint32_t slot = 0);

}  // namespace infini
