#include "sink/kafka/properties.hpp"

namespace outbox::sink::kafka {

bool is_secret(std::string_view name) {
    for (const std::string_view part :
         {"password", "secret", "passphrase", "key.pem", "private.key", "oauthbearer.config"}) {
        if (name.find(part) != std::string_view::npos) return name != kPasswordFile;
    }
    return false;
}

std::string why_never(std::string_view, std::string_view) { return {}; }

}  // namespace outbox::sink::kafka
