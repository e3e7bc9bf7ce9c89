#include "sink/http/signature.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <stdexcept>

#include "core/base64.hpp"

namespace outbox::sink::http {

std::string signatures(const std::vector<std::string>& keys, std::string_view id, std::int64_t unix_seconds, std::string_view body) {
    if (keys.empty()) return {};
    std::string content(id);
    content.append(".").append(std::to_string(unix_seconds)).append(".").append(body);
    core::Buffer out;
    for (const std::string& key : keys) {
        unsigned char digest[EVP_MAX_MD_SIZE];
        unsigned int length = 0;
        if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(content.data()), content.size(),
                 digest, &length) == nullptr)
            throw std::runtime_error("OpenSSL cannot compute HMAC-SHA256");
        if (!out.empty()) out.append(' ');
        out.append("v1,");
        core::append_base64(out, {reinterpret_cast<const char*>(digest), length});
    }
    return std::string(out.view());
}

}  // namespace outbox::sink::http
