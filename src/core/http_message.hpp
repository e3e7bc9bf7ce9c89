// An event as the body and headers of an HTTP request, and which headers a request may have.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/event.hpp"
#include "core/options.hpp"
#include "core/wire.hpp"

namespace outbox::core {

bool is_http_name(std::string_view name);    // a token of RFC 9110
bool is_http_value(std::string_view value);  // visible ASCII, and spaces and tabs between
bool is_credential_header(std::string_view name);  // in any case
// Set by the sink, by libcurl, or of one connection alone: nobody else's to set.
bool is_header_of_ours(std::string_view name);

struct HttpMessage {
    std::string id;    // the event's, or that of the events together
    std::string body;  // the same at each attempt
    std::vector<std::pair<std::string, std::string>> headers;  // of the event: its format's, then its own
};

class HttpEncoder {
public:
    explicit HttpEncoder(const SinkOptions& options);

    // An event's own headers come along where they are legal in HTTP, ASCII and nobody else's; others are left out. False as
    // Encoder::encode() says it.
    bool encode(const Event& event, HttpMessage& message);

    // Several events of the format webhook: a JSON array of their bodies, each with the event's own headers as a member "headers". Leaves
    // `id` alone. False as Encoder::encode() says it, of one of them.
    bool encode_together(std::span<const Event* const> events, HttpMessage& message);

private:
    const Format format_;
    Encoder encoder_;
};

}  // namespace outbox::core
