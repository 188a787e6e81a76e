#include "arguments.h"

namespace infini {

bool has_memory(const at::Tensor& tensor) {
    constexpr c10::DispatchKeySet not_memory({
        c10::DispatchKey::Python,
        c10::DispatchKey::Functionalize,
        c10::DispatchKey::FuncTorchBatched,
        c10::DispatchKey::FuncTorchGradWrapper,
        c10::DispatchKey::Sparse,
        c10::DispatchKey::NestedTensor,
        c10::DispatchKey::Quantized,
    });
    return tensor.defined() && tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_meta() &&
           !tensor.key_set().has_any(not_memory) && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

TensorArg describe(const at::Tensor& tensor, uint32_t slot) {
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    return TensorArg{
        slot,
        static_cast<uint32_t>(sizes.size()),
        sizes.data(),
        strides.data(),
        tensor.storage_offset(),
        static_cast<uint32_t>(tensor.element_size()),
        static_cast<int8_t>(tensor.scalar_type()),
        tensor.is_privateuseone(),
    };
}

}  // namespace infini
