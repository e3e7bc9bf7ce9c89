// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

#include "core/buffer.hpp"

namespace outbox::core {

void append_base64(Buffer& out, std::string_view bytes);

// False for anything but base64, whose padding may be left out; then `out` means nothing.
bool decode_base64(std::string_view text, std::string& out);

}  // namespace outbox::core
