#include "sink/http/signature.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <stdexcept>

#include "core/base64.hpp"
#include "core/uuid.hpp"

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

std::string id_together(std::span<const core::Event* const> events) {
    std::string ids;
    for (const core::Event* event : events) ids.append(reinterpret_cast<const char*>(event->event_id.data()), event->event_id.size());
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (EVP_Digest(ids.data(), ids.size(), digest, nullptr, EVP_sha256(), nullptr) != 1) throw std::runtime_error("OpenSSL cannot compute SHA-256");
    core::EventId id;
    std::copy_n(digest, id.size(), id.begin());
    id[6] = static_cast<std::uint8_t>(0x80 | (id[6] & 0x0f));
    id[8] = static_cast<std::uint8_t>(0x80 | (id[8] & 0x3f));
    std::string text(core::kUuidLength, '\0');
    core::write_uuid(text.data(), id);
    return text;
}

}  // namespace outbox::sink::http
