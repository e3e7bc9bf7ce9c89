#include "sink/kafka/notices.hpp"

#include <librdkafka/rdkafka.h>

namespace outbox::sink::kafka {

namespace {

// How much a text explains. A lower one replaces a higher one only when that has not been repeated for so long.
constexpr std::chrono::seconds kStale{15};
enum Rank : int { kNothing, kLog, kAllDown, kOther, kTransport, kResolve, kSecurity, kFatal };

Rank rank_of(std::int32_t code) {
    switch (code) {
        case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN: return kAllDown;
        case RD_KAFKA_RESP_ERR__TRANSPORT:
        case RD_KAFKA_RESP_ERR__TIMED_OUT: return kTransport;
        case RD_KAFKA_RESP_ERR__RESOLVE: return kResolve;
        case RD_KAFKA_RESP_ERR__SSL:
        case RD_KAFKA_RESP_ERR__AUTHENTICATION:
        case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM:
        case RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE:
        case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION: return kSecurity;
        case RD_KAFKA_RESP_ERR__FATAL: return kFatal;
        default: return kOther;
    }
}

// "[thrd:host:9092/bootstrap]: host:9092/bootstrap: Connect to …" says the same thing twice.
std::string_view without_thread(std::string_view text) {
    if (text.starts_with("[thrd:")) {
        const std::size_t end = text.find("]: ");
        if (end != std::string_view::npos) text.remove_prefix(end + 3);
    }
    return text;
}

}  // namespace

void Notices::error(std::int32_t code, std::string_view text) { take(rank_of(code), text); }

void Notices::log(std::string_view facility, std::string_view text) {
    // FAIL and ERROR come as error events too, but for what is suppressed there; the rest are the classes of lines that
    // name a cause. Anything else (connection closed, partition counts) is everyday life.
    static constexpr std::string_view kTelling[] = {"FAIL",  "ERROR",    "FATAL", "REQTMOUT", "BROKER",
                                                    "SASL",  "SASLERR",  "SSL",   "SSLVERIFY", "KERBEROS",
                                                    "GETPID", "PIDERR",  "TOPIC", "PROTOUFLOW", "OAUTHBEARER"};
    for (const std::string_view telling : kTelling) {
        if (facility == telling) return take(kLog, text);
    }
}

void Notices::take(int rank, std::string_view text) {
    const auto now = std::chrono::steady_clock::now();
    if (rank < rank_ && now - taken_ < kStale) return;
    std::string line = clean(without_thread(text));
    if (line.empty()) return;
    text_ = std::move(line);
    rank_ = rank;
    taken_ = now;
}

void Notices::forget() {
    if (rank_ == kFatal) return;
    text_.clear();
    rank_ = 0;
}

}  // namespace outbox::sink::kafka
