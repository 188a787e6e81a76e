// torch.ops.infini: schemas and kernels. Policies are asked of Rust; nothing is decided here.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "admin.h"
#include "arguments.h"
#include "capture.h"
#include "rearrange.h"
#include "refusal.h"
#include "timing.h"

namespace infini {
namespace {

using Site = std::optional<std::string_view>;

constexpr std::string_view kNoSite = "";
constexpr std::string_view kContiguous = "infini.contiguous";

void check_movable(const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.defined(), "infini::rearrange: ", name, " must be a tensor, not None");
    TORCH_CHECK(tensor.layout() == c10::kStrided && !tensor.is_nested(), "infini::rearrange: ", name,
                " must be a strided tensor, not ", tensor.layout(), tensor.is_nested() ? " (nested)" : "",
                "; make it dense first (to_dense, to_padded_tensor)");
    TORCH_CHECK(!tensor.is_quantized(), "infini::rearrange: ", name,
                " must not be a quantized tensor; use its int_repr()");
}

at::Tensor rearrange(const at::Tensor& self, Site site) {
    check_movable(self, "self");
    const c10::DeviceGuard guard(self.device());
    check_copy_outside_group(self);
    at::Tensor out = empty_contiguous(self);
    CopyTimer timer(site.value_or(kNoSite), self);
    copy_strided(out, self);
    timer.launched();
    if (has_memory(self)) {
        copied(rust_str(site.value_or(kNoSite)), describe(self), execution_of(self));
    }
    return out;
}

at::Tensor rearrange_meta(const at::Tensor& self, Site) {
    check_movable(self, "self");
    return empty_contiguous(self);
}

// Everything a destination must satisfy; the same on meta tensors, so that tracing refuses what running would.
void check_out_arguments(const at::Tensor& self, const at::Tensor& out) {
    check_movable(self, "self");
    check_movable(out, "out");
    TORCH_CHECK(self.scalar_type() == out.scalar_type(), "infini::rearrange: out has dtype ", out.scalar_type(),
                ", self has ", self.scalar_type(), "; they must be the same (no conversion is done)");
    TORCH_CHECK(self.device() == out.device(), "infini::rearrange: out is on ", out.device(), ", self is on ",
                self.device(), "; they must be on the same device");
}

at::Tensor& rearrange_out(const at::Tensor& self, Site site, at::Tensor& out) {
    check_out_arguments(self, out);
    const at::Tensor source = self.expand_symint(out.sym_sizes());
    if (!has_memory(out) || !has_memory(source)) {
        return out;
    }
    const auto address = [](const at::Tensor& tensor) { return reinterpret_cast<size_t>(tensor.storage().data()); };
    check_out(describe(out), address(out), describe(source), address(source));
    const c10::DeviceGuard guard(self.device());
    CopyTimer timer(site.value_or(kNoSite), source);
    copy_strided(out, source);
    timer.launched();
    copied(rust_str(site.value_or(kNoSite)), describe(source), execution_of(source));
    return out;
}

// The identity: rearrange moves values, it does not change them. Any layout of the gradient will do.
class RearrangeFunction : public torch::autograd::Function<RearrangeFunction> {
public:
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& self,
                              const std::optional<std::string>& site) {
        at::AutoDispatchBelowADInplaceOrView guard;
        return call(self, site.has_value() ? Site(*site) : std::nullopt);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list grads) {
        return {grads[0], at::Tensor()};
    }

    static at::Tensor call(const at::Tensor& self, Site site) {
        static const auto op = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("infini::rearrange", "")
                                   .typed<at::Tensor(const at::Tensor&, Site)>();
        return op.call(self, site);
    }
};

at::Tensor rearrange_autograd(const at::Tensor& self, Site site) {
    if (at::GradMode::is_enabled() && self.requires_grad()) {
        return RearrangeFunction::apply(self, site.has_value() ? std::optional<std::string>(*site) : std::nullopt);
    }
    at::AutoDispatchBelowADInplaceOrView guard;
    return RearrangeFunction::call(self, site);
}

at::Tensor& call_rearrange_out(const at::Tensor& self, Site site, at::Tensor& out) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("infini::rearrange", "out")
                               .typed<at::Tensor&(const at::Tensor&, Site, at::Tensor&)>();
    return op.call(self, site, out);
}

at::Tensor& rearrange_out_autograd(const at::Tensor& self, Site site, at::Tensor& out) {
    TORCH_CHECK(!(at::GradMode::is_enabled() && (self.requires_grad() || out.requires_grad())),
                "infini::rearrange: functions with out=... arguments don't support automatic differentiation, but one "
                "of the arguments requires grad");
    at::AutoDispatchBelowAutograd guard;
    return call_rearrange_out(self, site, out);
}

// In inference mode too a normal tensor that was saved for a gradient must be seen to have changed.
at::Tensor& rearrange_out_in_place(const at::Tensor& self, Site site, at::Tensor& out) {
    {
        at::AutoDispatchBelowADInplaceOrView guard;
        call_rearrange_out(self, site, out);
    }
    if (!out.is_inference()) {
        out.unsafeGetTensorImpl()->bump_version();
    }
    return out;
}

// Under functionalization the destination gets the values of a functional copy.
at::Tensor& rearrange_out_functionalize(const at::Tensor& self, Site site, at::Tensor& out) {
    namespace functionalization = at::functionalization::impl;
    const auto value = [](const at::Tensor& tensor) {
        if (!functionalization::isFunctionalTensor(tensor)) {
            return tensor;
        }
        functionalization::sync(tensor);
        return functionalization::from_functional_tensor(tensor);
    };
    check_out_arguments(self, out);
    const at::Tensor source = value(self);
    if (!functionalization::isFunctionalTensor(out)) {
        at::AutoDispatchSkipFunctionalize guard;
        call_rearrange_out(source, site, out);
        return out;
    }
    at::Tensor moved;
    {
        at::AutoDispatchSkipFunctionalize guard;
        moved = RearrangeFunction::call(source.expand_symint(out.sym_sizes()), site);
    }
    functionalization::replace_(out, moved);
    functionalization::commit_update(out);
    functionalization::sync(out);
    return out;
}

at::Tensor contiguous(const at::Tensor& self, Site site) {
    check_movable(self, "self");
    const auto name = rust_str(site.value_or(kNoSite));
    if (!has_memory(self)) {
        // Being traced: the layout is all there is, and what is recorded must hold for every run.
        if (self.is_contiguous()) {
            return self;
        }
        const Decided traced = contiguous_traced(name);
        if (traced.verdict == Verdict::Refuse) {
            raise_not_contiguous(traced.message);
        }
        return traced.verdict == Verdict::Pass ? self : RearrangeFunction::call(self, site.value_or(kContiguous));
    }
    if (self.is_contiguous()) {
        contiguous_passed(name);
        return self;
    }
    const Decided decided = contiguous_decide(name, describe(self));
    switch (decided.verdict) {
        case Verdict::Refuse:
            raise_not_contiguous(decided.message);
        case Verdict::Act:
            return call_rearrange(self, site.value_or(kContiguous));
        default:
            return self;
    }
}

}  // namespace

TORCH_LIBRARY(infini, m) {
    m.set_python_module("infini_rearrange");
    m.def("rearrange(Tensor self, *, str? site=None) -> Tensor",
          {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout});
    m.def("rearrange.out(Tensor self, *, str? site=None, Tensor(a!) out) -> Tensor(a!)",
          {at::Tag::pt2_compliant_tag, at::Tag::needs_exact_strides});
    m.def("contiguous(Tensor(a) self, str? site=None) -> Tensor(a)", {at::Tag::pt2_compliant_tag});
    define_admin(m);
}

// CompositeExplicitAutograd serves every backend, sparse ones included (they get a clear refusal).
TORCH_LIBRARY_IMPL(infini, CompositeExplicitAutograd, m) {
    m.impl("rearrange", &rearrange);
    m.impl("rearrange.out", &rearrange_out);
}

// A nested tensor has no backend of its own in that sense: it too gets the refusal.
TORCH_LIBRARY_IMPL(infini, NestedTensorCPU, m) {
    m.impl("rearrange", &rearrange);
}

TORCH_LIBRARY_IMPL(infini, Meta, m) {
    m.impl("rearrange", &rearrange_meta);
}

TORCH_LIBRARY_IMPL(infini, Autograd, m) {
    m.impl("rearrange", &rearrange_autograd);
    m.impl("rearrange.out", &rearrange_out_autograd);
}

TORCH_LIBRARY_IMPL(infini, ADInplaceOrView, m) {
    m.impl("rearrange.out", &rearrange_out_in_place);
}

TORCH_LIBRARY_IMPL(infini, Functionalize, m) {
    m.impl("rearrange.out", &rearrange_out_functionalize);
}

TORCH_LIBRARY_IMPL(infini, CompositeImplicitAutograd, m) {
    m.impl("contiguous", &contiguous);
}

}  // namespace infini
