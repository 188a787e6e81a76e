#include "rearrange.h"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "arguments.h"

namespace infini {

at::Tensor empty_contiguous(const at::Tensor& like) {
    return at::empty_symint(like.sym_sizes(), like.options(), c10::MemoryFormat::Contiguous);
}

at::Tensor call_rearrange(const at::Tensor& self, std::string_view site) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("infini::rearrange", "")
                               .typed<at::Tensor(const at::Tensor&, std::optional<std::string_view>)>();
    return op.call(self, site);
}

void copy_strided(const at::Tensor& dst, const at::Tensor& src) {
    if (dst.numel() == 0) {
        return;
    }
    // Views with a conj or neg bit are resolved by torch's copy, in the same pass.
    const bool plain = !src.is_conj() && !src.is_neg() && !dst.is_conj() && !dst.is_neg();
    if (plain && dst.is_cpu() && src.is_cpu()) {
        copy_on_host(describe(dst), static_cast<uint8_t*>(dst.storage().mutable_data()), describe(src),
                     static_cast<const uint8_t*>(src.storage().data()));
        return;
    }
#ifdef INFINI_TORCH_NPU
    if (plain && dst.is_privateuseone() && src.is_privateuseone()) {
        copy_strided_npu(dst, src);
        return;
    }
#endif
    dst.copy_(src);
}

}  // namespace infini
