#include "refusal.h"

#include <pybind11/pybind11.h>

namespace infini {

// torch calls operators through pybind11, which hands a pybind11::error_already_set on to Python as it is: the one way
// to raise a class of our own. Where the Python package is not loaded (a bare load_library) a plain error has to do.
void raise_not_contiguous(const rust::String& message) {
    const std::string text(message);
    if (Py_IsInitialized() != 0) {
        pybind11::gil_scoped_acquire gil;
        PyObject* modules = PyImport_GetModuleDict();
        PyObject* module = PyDict_GetItemString(modules, "infini_rearrange._errors");
        PyObject* type = module == nullptr ? nullptr : PyObject_GetAttrString(module, "NonContiguousError");
        if (type != nullptr) {
            PyErr_SetString(type, text.c_str());
            Py_DECREF(type);
            throw pybind11::error_already_set();
        }
        PyErr_Clear();
    }
    C10_THROW_ERROR(Error, text);
}

}  // namespace infini
