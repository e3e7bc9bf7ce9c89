// Signatures as Standard Webhooks 1.0 has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::sink::http {

// The value of webhook-signature: "v1," and the base64 of HMAC-SHA256 over `id.timestamp.body` for each key, separated by spaces.
std::string signatures(const std::vector<std::string>& keys, std::string_view id, std::int64_t unix_seconds, std::string_view body);

}  // namespace outbox::sink::http
