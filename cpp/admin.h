// Private operators through which the Python package talks to the library.
#pragma once

#include <torch/library.h>

namespace infini {

void define_admin(torch::Library& library);

}  // namespace infini
