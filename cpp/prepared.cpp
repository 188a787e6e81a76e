#include "prepared.h"

#include <optional>

#include "capture.h"
#include "hook.h"
#include "overload.h"

namespace infini {
namespace {

// The call that this thread has prepared and not finished.
thread_local std::optional<Substitutions> prepared;

}  // namespace

std::vector<at::Tensor> prepare_call(std::string_view name, std::string_view overload, at::TensorList tensors,
                                     at::IntArrayRef positions, at::IntArrayRef elements) {
    TORCH_CHECK(positions.size() == tensors.size() && elements.size() == tensors.size(),
                "infini::_graph_prepare: one position and one element are needed for each of ", tensors.size(),
                " tensors, not ", positions.size(), " and ", elements.size());
    abandon_call();
    const auto hooked = hooked_overload(name, overload);
    if (hooked == nullptr || !hooked->awake()) {
        return {};
    }
    std::vector<at::Tensor> stand_ins;
    prepared.emplace(hooked->prepare(tensors, positions, elements, stand_ins));
    set_call_prepared(true);
    return stand_ins;
}

std::vector<at::Tensor> finish_call(at::TensorList results) {
    std::vector<at::Tensor> restored = results.vec();
    set_call_prepared(false);
    if (!prepared.has_value()) {
        return restored;
    }
    const Substitutions substitutions = std::move(*prepared);
    prepared.reset();
    substitutions.copy_back();
    for (at::Tensor& result : restored) {
        result = at::Tensor(substitutions.original_of(result));
    }
    return restored;
}

void abandon_call() {
    set_call_prepared(false);
    prepared.reset();
}

}  // namespace infini
