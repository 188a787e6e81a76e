#include "admin.h"

#include "arguments.h"
#include "capture.h"
#include "hook.h"
#include "prepared.h"
#include "refusal.h"
#include "timing.h"

namespace infini {

void define_admin(torch::Library& m) {
    m.def("_configure() -> ()", [] { configure(); });
    m.def("_install() -> str[]", [] { return install_hooks(); });
    m.def("_uninstall() -> ()", [] { uninstall_hooks(); });
    m.def("_wrap(str operator_name) -> ()", [](std::string_view name) { wrap_operator(name); });
    m.def("_scope_push(str directives, str name, bool activate) -> int",
          [](std::string_view directives, std::string_view name, bool activate) {
              return scope_push(rust_str(directives), rust_str(name), activate);
          });
    m.def("_scope_pop(int token) -> ()", [](int64_t token) { scope_pop(token); });
    m.def("_explain(Tensor self) -> str", [](const at::Tensor& self) {
        TORCH_CHECK(has_memory(self), "infini_rearrange.explain: needs a strided tensor with memory, not ",
                    self.toString());
        return std::string(explain(describe(self)));
    });
    m.def("_profile() -> str", [] {
        collect_times();
        return std::string(profile_json());
    });
    m.def("_profile_reset() -> ()", [] { profile_reset(); });
    m.def("_profile_save(str path) -> ()", [](std::string_view path) {
        collect_times();
        profile_save(rust_str(path));
    });
    m.def("_doctor() -> str", [] { return std::string(doctor_json()); });
    m.def("_graph_begun() -> int", [] { return capture_begun(); });
    m.def("_graph_ended(int graph) -> ()", [](int64_t graph) { capture_ended(graph); });
    m.def("_graph_released(int graph) -> ()", [](int64_t graph) { capture_released(graph); });
    m.def("_graph_replayed(int graph) -> ()", [](int64_t graph) { graph_replayed(graph); });
    m.def("_graph_group_begun(int stream) -> ()", [](int64_t stream) { group_begun(stream); });
    m.def("_graph_group_ended() -> int", [] { return group_ended(); });
    m.def("_graph_update_begun(int stream, int group) -> ()",
          [](int64_t stream, int64_t group) { update_begun(stream, group); });
    m.def("_graph_update_ended() -> ()", [] { update_ended(); });
    m.def("_graph_prepare(str name, str overload, Tensor[] tensors, int[] positions, int[] elements) -> Tensor[]",
          [](std::string_view name, std::string_view overload, at::TensorList tensors, at::IntArrayRef positions,
             at::IntArrayRef elements) { return prepare_call(name, overload, tensors, positions, elements); });
    m.def("_graph_finish(Tensor[] results) -> Tensor[]", [](at::TensorList results) { return finish_call(results); });
    m.def("_graph_abandon() -> ()", [] { abandon_call(); });
    m.def("_set_log_callback(int address) -> ()", [](int64_t address) { set_log_callback(address); });
}

}  // namespace infini
