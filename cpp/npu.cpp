// What needs torch_npu: private formats, and copies on the NPU in task-queue order.
#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch_npu/csrc/core/npu/NPUFormat.h>

#include "arguments.h"
#include "rearrange.h"

namespace infini {
namespace {

// aclnnInplaceCopy takes at most this many dimensions.
constexpr size_t kAclnnDims = 8;

// Base formats of torch_npu (aclFormat): NCHW 0, NHWC 1, ND 2, NCDHW 30, and NCL 47.
bool is_base_format(int64_t format) {
    return format == -1 || format == 0 || format == 1 || format == 2 || format == 30 || format == 47;
}

at::Tensor view(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
    return at::as_strided(base, sizes, strides, offset);
}

// One launch where the merged copy has few enough dimensions (practically always), else one for each index of the
// outermost dimensions.
void copy_views(const at::Tensor& dst, const at::Tensor& src, at::IntArrayRef shape, at::IntArrayRef dst_strides,
                at::IntArrayRef src_strides, int64_t dst_offset, int64_t src_offset) {
    if (shape.size() <= kAclnnDims) {
        view(dst, shape, dst_strides, dst_offset).copy_(view(src, shape, src_strides, src_offset));
        return;
    }
    for (int64_t index = 0; index < shape[0]; ++index) {
        copy_views(dst, src, shape.slice(1), dst_strides.slice(1), src_strides.slice(1),
                   dst_offset + index * dst_strides[0], src_offset + index * src_strides[0]);
    }
}

}  // namespace

bool has_private_format(const at::Tensor& tensor) {
    return tensor.is_privateuseone() && !is_base_format(at_npu::native::get_npu_format(tensor));
}

void copy_strided_npu(const at::Tensor& dst, const at::Tensor& src) {
    if (has_private_format(dst) || has_private_format(src)) {
        dst.copy_(src);
        return;
    }
    const SimplifiedCopy plan = simplify_copy(describe(dst), describe(src));
    const auto list = [](const rust::Vec<int64_t>& values) { return at::IntArrayRef(values.data(), values.size()); };
    copy_views(dst, src, list(plan.shape), list(plan.dst_strides), list(plan.src_strides), plan.dst_offset,
               plan.src_offset);
}

}  // namespace infini
