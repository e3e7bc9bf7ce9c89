// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <string_view>

#include "core/buffer.hpp"

namespace outbox::core {

void append_base64(Buffer& out, std::string_view bytes);

}  // namespace outbox::core
