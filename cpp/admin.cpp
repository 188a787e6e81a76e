#include "admin.h"

#include "arguments.h"
#include "hook.h"
#include "refusal.h"

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
    m.def("_profile() -> str", [] { return std::string(profile_json()); });
    m.def("_profile_reset() -> ()", [] { profile_reset(); });
    m.def("_profile_save(str path) -> ()", [](std::string_view path) { profile_save(rust_str(path)); });
    m.def("_doctor() -> str", [] { return std::string(doctor_json()); });
    m.def("_set_log_callback(int address) -> ()", [](int64_t address) { set_log_callback(address); });
}

}  // namespace infini
