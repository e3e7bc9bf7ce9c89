#include "sink/http/request.hpp"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/address.hpp"
#include "core/base64.hpp"
#include "core/http_status.hpp"
#include "core/text.hpp"
#include "sink/http/signature.hpp"

#ifndef OUTBOX_VERSION
#define OUTBOX_VERSION "unknown"
#endif

namespace outbox::sink::http {

namespace {

constexpr std::size_t kBodyKept = 4096;       // of an answer, for an error column; more than that shows, so that no secret is cut in two
constexpr std::size_t kMostBody = 64 << 10;   // what is longer is broken off, and judged by its status
constexpr std::size_t kMostHeaders = 32 << 10;

std::string base64(std::string_view bytes) {
    core::Buffer text;
    core::append_base64(text, bytes);
    return std::string(text.view());
}

std::vector<std::string> secrets_of(const core::HttpOptions& o) {
    std::vector<std::string> secrets;
    for (const std::string* text : {&o.bearer_token, &o.password}) {
        if (text->size() >= 4) secrets.push_back(*text);
    }
    for (const std::string& key : o.signing_keys) secrets.push_back(base64(key));
    if (!o.username.empty()) secrets.push_back(base64(o.username + ":" + o.password));
    return secrets;
}

std::string authorization(const core::HttpOptions& o) {
    if (!o.bearer_token.empty()) return "Authorization: Bearer " + o.bearer_token;
    if (o.username.empty()) return {};
    return "Authorization: Basic " + base64(o.username + ":" + o.password);
}

std::string printed(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    if (address->sa_family == AF_INET6) inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    return text;
}

std::string_view why_not(const sockaddr* address) {
    if (address->sa_family == AF_INET) {
        const auto& ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        return core::why_not_global({reinterpret_cast<const std::uint8_t*>(&ip), 4});
    }
    if (address->sa_family == AF_INET6) {
        const auto& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
        return core::why_not_global({reinterpret_cast<const std::uint8_t*>(&ip), 16});
    }
    return "no IP address";
}

// What the other side says goes to error columns of databases of any encoding.
std::string in_ascii(std::string text) {
    std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    return text;
}

// libcurl's time of the connection is that of one that can be used: what went wrong with TLS came after it was made.
bool is_of_tls(int code) {
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE;
}

template <typename Value>
void set(CURL* easy, CURLoption option, Value value, const char* what) {
    if (curl_easy_setopt(easy, option, value) != CURLE_OK) throw std::runtime_error(std::string("libcurl does not take ") + what);
}

void set_blob(CURL* easy, CURLoption option, const std::string& text, const char* what) {
    curl_blob blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY};
    set(easy, option, &blob, what);
}

}  // namespace

struct RequestCallbacks {
    static std::size_t body(char* bytes, std::size_t, std::size_t size, void* user) {
        auto* h = static_cast<Handle*>(user);
        if (h->body_.size() < kBodyKept) h->body_.append(bytes, std::min(size, kBodyKept - h->body_.size()));
        h->body_size_ += size;
        if (h->body_size_ <= kMostBody) return size;
        h->body_cut_ = true;
        return 0;
    }
    static std::size_t header(char* bytes, std::size_t, std::size_t size, void* user) {
        auto* h = static_cast<Handle*>(user);
        // Of an interim answer (1xx) nothing counts but its size.
        if (size >= 5 && std::memcmp(bytes, "HTTP/", 5) == 0) h->body_.clear();
        h->header_size_ += size;
        return h->header_size_ <= kMostHeaders ? size : 0;
    }
    // Here and not before: a name can have another address each time that it is asked for.
    static curl_socket_t open(void* user, curlsocktype, curl_sockaddr* address) {
        auto* h = static_cast<Handle*>(user);
        const std::string_view why = h->options_.http.allow_private ? std::string_view() : why_not(&address->addr);
        if (!why.empty() || (address->family != AF_INET && address->family != AF_INET6)) {
            h->refused_ = "the address " + printed(&address->addr) + " is " + std::string(why.empty() ? "no IP address" : why) +
                          ": the sink's option allow_private would let it through";
            return CURL_SOCKET_BAD;
        }
        return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    }
};

Handle::Handle(const core::SinkOptions& options) : options_(options), secrets_(secrets_of(options.http)) {
    const core::HttpOptions& o = options.http;
    static_assert(sizeof error_ >= CURL_ERROR_SIZE);
    easy_ = curl_easy_init();
    if (easy_ == nullptr) throw std::runtime_error("libcurl has no handle for a request");
    try {
        set(easy_, CURLOPT_PRIVATE, static_cast<void*>(this), "a handle");
        set(easy_, CURLOPT_ERRORBUFFER, error_, "an error buffer");
        set(easy_, CURLOPT_NOSIGNAL, 1L, "to leave signals alone");
        set(easy_, CURLOPT_QUICK_EXIT, 1L, "not to wait for name lookups");
        set(easy_, CURLOPT_URL, o.url.c_str(), "the option url");
        set(easy_, CURLOPT_PROTOCOLS_STR, o.allow_http ? "http,https" : "https", "the protocols");
        set(easy_, CURLOPT_FOLLOWLOCATION, 0L, "to follow nothing");
        set(easy_, CURLOPT_PROXY, "", "to use no proxy");
        set(easy_, CURLOPT_NOPROXY, "*", "to use no proxy");
        set(easy_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED), "to read no file");
        set(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS), "the version of HTTP");
        set(easy_, CURLOPT_PIPEWAIT, o.https ? 1L : 0L, "to share connections");
        set(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(o.connect_timeout_ms), "the option connect_timeout");
        set(easy_, CURLOPT_TIMEOUT_MS, static_cast<long>(o.request_timeout_ms), "the option request_timeout");
        set(easy_, CURLOPT_TCP_NODELAY, 1L, "not to wait for more");
        set(easy_, CURLOPT_USERAGENT, "outbox/" OUTBOX_VERSION, "a user agent");
        set(easy_, CURLOPT_POST, 1L, "to POST");
        set(easy_, CURLOPT_WRITEFUNCTION, &RequestCallbacks::body, "a callback");
        set(easy_, CURLOPT_WRITEDATA, static_cast<void*>(this), "a callback");
        set(easy_, CURLOPT_HEADERFUNCTION, &RequestCallbacks::header, "a callback");
        set(easy_, CURLOPT_HEADERDATA, static_cast<void*>(this), "a callback");
        set(easy_, CURLOPT_OPENSOCKETFUNCTION, &RequestCallbacks::open, "a callback");
        set(easy_, CURLOPT_OPENSOCKETDATA, static_cast<void*>(this), "a callback");
        if (o.https) {
            set(easy_, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2), "TLS 1.2");
            if (!o.ca_certificate.empty()) set_blob(easy_, CURLOPT_CAINFO_BLOB, o.ca_certificate, "the option ca_certificate");
            if (!o.client_certificate.empty()) {
                set_blob(easy_, CURLOPT_SSLCERT_BLOB, o.client_certificate, "the option client_certificate");
                set(easy_, CURLOPT_SSLCERTTYPE, "PEM", "PEM");
                set_blob(easy_, CURLOPT_SSLKEY_BLOB, o.client_key, "the option client_key");
                set(easy_, CURLOPT_SSLKEYTYPE, "PEM", "PEM");
            }
        }
    } catch (...) {
        curl_easy_cleanup(easy_);
        throw;
    }
}

Handle::~Handle() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(headers_);
}

void Handle::prepare(const core::HttpMessage& message) {
    const core::HttpOptions& o = options_.http;
    curl_slist_free_all(headers_);
    headers_ = nullptr;
    const auto line = [this](const std::string& text) {
        curl_slist* longer = curl_slist_append(headers_, text.c_str());
        if (longer == nullptr) throw std::bad_alloc();
        headers_ = longer;
    };
    // libcurl's way to say that a header is there and empty.
    const auto header = [&line](const std::string& name, const std::string& value) { line(value.empty() ? name + ";" : name + ": " + value); };
    const auto same = [](const std::string& a, const std::string& b) { return curl_strequal(a.c_str(), b.c_str()) != 0; };

    line("Expect:");  // no 100-continue
    bool typed = false;
    for (const auto& of_event : message.headers) {
        if (std::any_of(o.headers.begin(), o.headers.end(), [&](const auto& ours) { return same(ours.first, of_event.first); })) continue;
        typed = typed || of_event.first == "content-type";
        header(of_event.first, of_event.second);
    }
    if (!typed) line("Content-Type:");  // libcurl would say that it is a form
    for (const auto& [name, value] : o.headers) header(name, value);
    const std::int64_t now = time(nullptr);
    header("webhook-id", message.id);
    header("webhook-timestamp", std::to_string(now));
    if (!o.signing_keys.empty()) header("webhook-signature", signatures(o.signing_keys, message.id, now, message.body));
    if (o.idempotency_key) header("idempotency-key", message.id);
    if (const std::string text = authorization(o); !text.empty()) line(text);

    error_[0] = '\0';
    body_.clear();
    body_size_ = header_size_ = 0;
    body_cut_ = false;
    refused_.clear();
    curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, message.body.data());
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(message.body.size()));
}

Handle::Answer Handle::answer(int code) const {
    Answer answer;
    long status = 0;
    curl_off_t retry_after = 0, resolved = 0, connected = 0, secured = 0, began = 0;
    char* address = nullptr;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy_, CURLINFO_RETRY_AFTER, &retry_after);
    curl_easy_getinfo(easy_, CURLINFO_NAMELOOKUP_TIME_T, &resolved);
    curl_easy_getinfo(easy_, CURLINFO_CONNECT_TIME_T, &connected);
    curl_easy_getinfo(easy_, CURLINFO_APPCONNECT_TIME_T, &secured);
    curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &began);
    if (curl_easy_getinfo(easy_, CURLINFO_PRIMARY_IP, &address) == CURLE_OK && address != nullptr) answer.address = address;
    answer.resolved = resolved > 0;
    answer.connected = connected > 0 || is_of_tls(code);
    answer.secured = secured > 0;
    if (code == CURLE_OK || body_cut_) {
        answer.status = static_cast<int>(status);
        answer.retry_after_s = std::max<std::int64_t>(retry_after, 0);
        std::string text = core::status_words(answer.status);
        if (answer.retry_after_s > 0) text += ", Retry-After " + std::to_string(answer.retry_after_s) + " s";
        if (!body_.empty()) text += ": " + body_;
        answer.words = core::clean_text(in_ascii(text), secrets_);
        return answer;
    }
    std::string text = options_.http.host + ": ";
    if (!refused_.empty())
        text += refused_;
    else if (code == CURLE_OPERATION_TIMEDOUT && connected == 0 && began == 0)  // a kept connection was made earlier
        text += "no connection within " + std::to_string(std::min(options_.http.connect_timeout_ms, options_.http.request_timeout_ms)) + " ms";
    else if (code == CURLE_OPERATION_TIMEDOUT)
        text += "no whole answer within " + std::to_string(options_.http.request_timeout_ms) + " ms";
    else if (header_size_ > kMostHeaders || (code == CURLE_OUT_OF_MEMORY && began > 0))  // libcurl's word for a single one that is very large
        text += "the answer's headers are larger than " + std::to_string(kMostHeaders) + " bytes";
    else
        text += error_[0] != '\0' ? error_ : curl_easy_strerror(static_cast<CURLcode>(code));
    answer.words = core::clean_text(in_ascii(text), secrets_);
    return answer;
}

}  // namespace outbox::sink::http
