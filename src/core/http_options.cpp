#include "core/http_options.hpp"

#include <algorithm>
#include <array>

#include "core/base64.hpp"
#include "core/http_message.hpp"
#include "core/json.hpp"
#include "core/option_values.hpp"
#include "core/text.hpp"

namespace outbox::core {

namespace {

OptionError wrong(std::string_view option, std::string what, std::string hint) {
    return {std::string(option), "option \"" + std::string(option) + "\" " + std::move(what), std::move(hint)};
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// scheme://host[:port][/path][?query] and nothing else: no user, no fragment, no space, so that libcurl and we cannot read it
// in two ways.
OptionError set_url(HttpOptions& o, std::string_view value) {
    constexpr const char* hint = "Give https://host/path, with ? and a query where there is one. It may have no user, password or #fragment: "
                                 "credentials belong in the user mapping.";
    const auto bad = [&] { return bad_value("url", value, hint); };
    std::string scheme;
    const std::size_t colon = value.find("://");
    if (colon == std::string_view::npos) return bad();
    for (const char c : value.substr(0, colon)) scheme += lower(c);
    if (scheme != "https" && scheme != "http") return bad();
    for (const char c : value) {
        if (c <= ' ' || c >= '\x7f' || c == '#' || c == '\\' || c == '"' || c == '<' || c == '>') return bad();
    }
    std::string_view rest = value.substr(colon + 3);
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
    std::string_view host = authority, port;
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        if (end == std::string_view::npos) return bad();
        host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
        const auto of_address = [](char c) { return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'f') || c == ':' || c == '.'; };
        if (host.empty() || !std::all_of(host.begin(), host.end(), of_address)) return bad();
    } else {
        host = authority.substr(0, authority.find(':'));
        port = authority.substr(host.size());
        if (host.empty() || host.size() > 253 || !std::all_of(host.begin(), host.end(), is_name_character)) return bad();
    }
    if (!port.empty()) {
        const auto digit = [](char c) { return c >= '0' && c <= '9'; };
        if (port[0] != ':' || port.size() < 2 || port.size() > 6 || !std::all_of(port.begin() + 1, port.end(), digit)) return bad();
        const int number = std::stoi(std::string(port.substr(1)));
        if (number < 1 || number > 65535) return bad();
    }
    o.url = value;
    o.host.clear();
    for (const char c : host) o.host += lower(c);
    o.https = scheme == "https";
    return {};
}

OptionError set_headers(HttpOptions& o, std::string_view value) {
    constexpr const char* hint = "Give a JSON object of strings, for example {\"X-Source\": \"payments\"}.";
    std::vector<JsonMember> members;
    Buffer decoded;
    if (!parse_flat_object(value, members, decoded)) return wrong("headers", "is not a flat JSON object of strings", hint);
    std::vector<std::pair<std::string, std::string>> headers;
    for (const JsonMember& member : members) {
        if (member.null || !is_http_name(member.name) || !is_http_value(member.value))
            return wrong("headers", "has a name or value that no HTTP header may have: " + quote_for_message(member.name), hint);
        if (is_credential_header(member.name))
            return wrong("headers", "may not have " + quote_for_message(member.name), "Credentials belong in the user mapping: bearer_token, or username and password.");
        if (is_header_of_ours(member.name))
            return wrong("headers", "may not have " + quote_for_message(member.name), "It is set by the sink itself.");
        headers.emplace_back(member.name, member.value);
    }
    o.headers = std::move(headers);
    return {};
}

OptionError set_pem(std::string& to, std::string_view option, std::string_view value, std::string_view what) {
    const std::string_view begin = "-----BEGIN ";
    if (value.find(begin) == std::string_view::npos || value.find(what) == std::string_view::npos || value.find("-----END ") == std::string_view::npos)
        return wrong(option, "is not " + std::string(what == "CERTIFICATE" ? "a certificate" : "a private key") + " in PEM form", "Give the text itself, from its -----BEGIN to its -----END line, not the name of a file.");
    to = value;
    return {};
}

// whsec_… in base64, one or more, separated by spaces. No message shows any of it.
OptionError set_secret(HttpOptions& o, std::string_view value) {
    constexpr const char* hint = "Give one or more of whsec_ with the base64 of 24 to 64 random bytes, separated by spaces; all of them sign.";
    std::vector<std::string> keys;
    for (std::size_t at = 0; at < value.size();) {
        const std::size_t begin = value.find_first_not_of(' ', at);
        if (begin == std::string_view::npos) break;
        at = std::min(value.find(' ', begin), value.size());
        std::string_view text = value.substr(begin, at - begin);
        std::string key;
        if (!text.starts_with("whsec_") || !decode_base64(text.substr(6), key)) return wrong("secret", "is not of the form whsec_…", hint);
        if (key.size() < 24 || key.size() > 64)
            return wrong("secret", "has " + std::to_string(key.size()) + " bytes, and 24 to 64 are allowed", hint);
        keys.push_back(std::move(key));
    }
    if (keys.empty()) return wrong("secret", "is empty", hint);
    o.signing_keys = std::move(keys);
    return {};
}

OptionError set_credential(std::string& to, std::string_view option, std::string_view value) {
    if (value.empty() || !is_http_value(value)) return wrong(option, "has characters that no HTTP header may have, or none", "Give it as the endpoint's operator gave it.");
    to = value;
    return {};
}

// Travels as base64.
OptionError set_text(std::string& to, std::string_view option, std::string_view value) {
    if (value.empty()) return wrong(option, "is empty", "Leave it out where there is none.");
    to = value;
    return {};
}

struct Option {
    std::string_view name;
    OptionError (*set)(HttpOptions&, std::string_view);
};

constexpr Option kServer[] = {
    {"url", set_url},
    {"concurrency", [](HttpOptions& o, std::string_view v) { return set_count(o.concurrency, 1, 256, "concurrency", v); }},
    {"batch", [](HttpOptions& o, std::string_view v) { return set_count(o.batch, 1, 1000, "batch", v); }},
    {"connect_timeout", [](HttpOptions& o, std::string_view v) { return set_duration(o.connect_timeout_ms, 10, 10 * kMinute, "10ms to 10min", "connect_timeout", v); }},
    {"request_timeout", [](HttpOptions& o, std::string_view v) { return set_duration(o.request_timeout_ms, 10, 10 * kMinute, "10ms to 10min", "request_timeout", v); }},
    {"attempts", [](HttpOptions& o, std::string_view v) { return set_count(o.attempts, 1, 1000, "attempts", v); }},
    {"rate_limit", [](HttpOptions& o, std::string_view v) { return set_count(o.rate_limit, 0, 1'000'000, "rate_limit", v); }},
    {"retry_after_limit", [](HttpOptions& o, std::string_view v) { return set_duration(o.retry_after_limit_ms, 10, 24 * kHour, "10ms to 24h", "retry_after_limit", v); }},
    {"allow_http", [](HttpOptions& o, std::string_view v) { return set_boolean(o.allow_http, "allow_http", v); }},
    {"allow_private", [](HttpOptions& o, std::string_view v) { return set_boolean(o.allow_private, "allow_private", v); }},
    {"idempotency_key", [](HttpOptions& o, std::string_view v) { return set_boolean(o.idempotency_key, "idempotency_key", v); }},
    {"headers", set_headers},
    {"ca_certificate", [](HttpOptions& o, std::string_view v) { return set_pem(o.ca_certificate, "ca_certificate", v, "CERTIFICATE"); }},
};

constexpr Option kMapping[] = {
    {"secret", set_secret},
    {"bearer_token", [](HttpOptions& o, std::string_view v) { return set_credential(o.bearer_token, "bearer_token", v); }},
    {"username", [](HttpOptions& o, std::string_view v) {
         if (v.find(':') != std::string_view::npos) return wrong("username", "may have no colon", "Basic authentication has no way to say it.");
         return set_text(o.username, "username", v);
     }},
    {"password", [](HttpOptions& o, std::string_view v) { return set_text(o.password, "password", v); }},
    {"client_certificate", [](HttpOptions& o, std::string_view v) { return set_pem(o.client_certificate, "client_certificate", v, "CERTIFICATE"); }},
    {"client_key", [](HttpOptions& o, std::string_view v) { return set_pem(o.client_key, "client_key", v, "PRIVATE KEY"); }},
};

template <std::size_t Count>
constexpr std::array<std::string_view, Count> names_of(const Option (&options)[Count]) {
    std::array<std::string_view, Count> names;
    for (std::size_t i = 0; i < Count; i++) names[i] = options[i].name;
    return names;
}
constexpr auto kServerNames = names_of(kServer);
constexpr auto kMappingNames = names_of(kMapping);

const Option* find(std::string_view name) {
    for (const Option& option : kServer) {
        if (option.name == name) return &option;
    }
    for (const Option& option : kMapping) {
        if (option.name == name) return &option;
    }
    return nullptr;
}

}  // namespace

bool is_http_option(std::string_view option) { return find(option) != nullptr; }

bool is_http_secret(std::string_view option) {
    return std::find(kMappingNames.begin(), kMappingNames.end(), option) != kMappingNames.end();
}

std::span<const std::string_view> http_server_options() { return kServerNames; }
std::span<const std::string_view> http_mapping_options() { return kMappingNames; }

OptionError set_http_option(HttpOptions& options, std::string_view option, std::string_view value) {
    const Option* known = find(option);
    if (known == nullptr) return {option.empty() ? "?" : std::string(option), "unknown option " + quote_for_message(option), {}};
    return known->set(options, value);
}

OptionError check_http_server(const HttpOptions& o) {
    if (o.url.empty()) return {"url", "the sink has no option \"url\"", "For example OPTIONS (url 'https://billing.example.com/hooks')."};
    if (!o.https && !o.allow_http)
        return wrong("url", "is not https", "Events and credentials would travel in clear. Set the option allow_http to true where that is meant.");
    return {};
}

OptionError check_http_mapping(const HttpOptions& o) {
    if (o.username.empty() != o.password.empty())
        return {o.username.empty() ? "username" : "password", "the options \"username\" and \"password\" belong together", "Give both or none."};
    if (!o.bearer_token.empty() && !o.username.empty())
        return {"bearer_token", "a request has one Authorization header: bearer_token, or username and password", "Give one of them."};
    if (o.client_certificate.empty() != o.client_key.empty())
        return {o.client_key.empty() ? "client_key" : "client_certificate", "the options \"client_certificate\" and \"client_key\" belong together", "Give both or none."};
    return {};
}

}  // namespace outbox::core
