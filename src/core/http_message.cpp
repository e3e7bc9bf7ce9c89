#include "core/http_message.hpp"

#include <algorithm>

namespace outbox::core {

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// What a CloudEvents attribute is in a header: everything but visible ASCII, and of that `"` and `%`, as %XX.
std::string escaped(std::string_view text) {
    constexpr char digits[] = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        if (c > ' ' && c < '\x7f' && c != '"' && c != '%') {
            out += c;
        } else {
            const auto byte = static_cast<unsigned char>(c);
            out += {'%', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return out;
}

}  // namespace

bool is_http_name(std::string_view name) {
    constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
    const auto good = [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || marks.find(c) != std::string_view::npos;
    };
    return !name.empty() && name.size() <= 256 && std::all_of(name.begin(), name.end(), good);
}

bool is_http_value(std::string_view value) {
    const auto good = [](char c) { return (c >= ' ' && c < '\x7f') || c == '\t'; };
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    return std::all_of(value.begin(), value.end(), good) && (value.empty() || (!blank(value.front()) && !blank(value.back())));
}

bool is_credential_header(std::string_view name) {
    return is_one_of(lower(name), {"authorization", "proxy-authorization", "cookie"});
}

bool is_header_of_ours(std::string_view name) {
    const std::string n = lower(name);
    return n.starts_with("webhook-") || n.starts_with("ce-") || n.starts_with("proxy-") ||
           is_one_of(n, {"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te",
                         "trailer", "upgrade", "expect", "idempotency-key"});
}

HttpEncoder::HttpEncoder(const SinkOptions& options)
    : format_(options.format),
      encoder_(WireSettings{options.format, options.source.empty() ? default_source(options.database) : options.source, false}) {}

bool HttpEncoder::encode(const Event& event, HttpMessage& message) {
    if (!encoder_.encode(event)) return false;
    message.id = encoder_.id();
    message.body = is_null(encoder_.value()) ? std::string_view() : encoder_.value();
    message.headers.clear();
    if (format_ == Format::webhook) message.headers.emplace_back("content-type", "application/json");
    for (const WireHeader& header : encoder_.headers()) {
        if (header.name.starts_with("ce_")) {
            message.headers.emplace_back("ce-" + std::string(header.name.substr(3)), escaped(header.value));
        } else if (header.name == "content-type" && format_ != Format::webhook) {
            message.headers.emplace_back(header.name, header.value);
        } else if (!header.null && is_http_name(header.name) && is_http_value(header.value) && !is_credential_header(header.name) &&
                   !is_header_of_ours(header.name) && lower(header.name) != "user-agent") {
            message.headers.emplace_back(header.name, header.value);
        }
    }
    return true;
}

bool HttpEncoder::encode_together(std::span<const Event* const> events, HttpMessage& message) {
    message.body = "[";
    for (const Event* event : events) {
        if (!encoder_.encode(*event)) return false;
        if (message.body.size() > 1) message.body += ',';
        message.body += encoder_.value();
        if (is_null(event->headers)) continue;
        message.body.pop_back();
        message.body.append(",\"headers\":").append(event->headers).append("}");
    }
    message.body += ']';
    message.headers = {{"content-type", "application/json"}};
    return true;
}

}  // namespace outbox::core
