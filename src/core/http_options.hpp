// The options that a sink over HTTP has beside those that all sinks have, parsed and checked.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::core {

struct OptionError {
    std::string option;   // empty: no error
    std::string message;  // never contains a secret value
    std::string hint;
};

struct HttpOptions {
    std::string url, host;  // host: as in the url, without port and brackets, in lower case
    bool https = false;

    int concurrency = 8;  // requests in flight of a lane, at most
    int batch = 1;        // events in a request, at most; more than one: as a JSON array
    int connect_timeout_ms = 5'000;
    int request_timeout_ms = 15'000;  // a request as a whole
    int attempts = 10;                // at an event that is refused for its own fault; then it is dead
    int rate_limit = 0;               // requests per second of all lanes together; 0: none
    int retry_after_limit_ms = 3'600'000;
    bool allow_http = false;
    bool allow_private = false;
    bool idempotency_key = false;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string ca_certificate;

    // Of the user mapping, and secret.
    std::vector<std::string> signing_keys;  // decoded
    std::string bearer_token, username, password, client_certificate, client_key;

    bool operator==(const HttpOptions&) const = default;
};

bool is_http_option(std::string_view option);    // of a server or a user mapping
bool is_http_secret(std::string_view option);    // belongs in the user mapping
std::span<const std::string_view> http_server_options();
std::span<const std::string_view> http_mapping_options();

OptionError set_http_option(HttpOptions& options, std::string_view option, std::string_view value);

// What one option alone does not show: a missing url, http:// without leave, half of a pair.
OptionError check_http_server(const HttpOptions& options);
OptionError check_http_mapping(const HttpOptions& options);

}  // namespace outbox::core
