// Signatures as Standard Webhooks 1.0 has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.hpp"

namespace outbox::sink::http {

// The value of webhook-signature: "v1," and the base64 of HMAC-SHA256 over `id.timestamp.body` for each key, separated by spaces.
std::string signatures(const std::vector<std::string>& keys, std::string_view id, std::int64_t unix_seconds, std::string_view body);

// The id of several events in one request: a UUID (version 8, RFC 9562) made of their ids by SHA-256, so that the same events in the same
// order have the same, and others another.
std::string id_together(std::span<const core::Event* const> events);

}  // namespace outbox::sink::http
