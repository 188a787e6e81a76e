// Raising infini_rearrange.NonContiguousError from C++.
#pragma once

#include <c10/util/Exception.h>

#include <string_view>

#include "infini-rearrange/src/ffi/bridge.rs.h"

namespace infini {

inline rust::Str rust_str(std::string_view text) {
    return rust::Str(text.data(), text.size());
}

[[noreturn]] void raise_not_contiguous(const rust::String& message);

}  // namespace infini
