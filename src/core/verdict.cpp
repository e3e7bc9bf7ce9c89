#include "core/verdict.hpp"

#include <algorithm>
#include <iterator>

namespace outbox::core {

namespace {

constexpr std::int32_t kUnknownPartition = -190, kUnknownTopic = -188;
constexpr std::int32_t kInvalidMsg = 2, kUnknownTopicOrPart = 3, kTopicException = 17;

// Sorted by code. Negative codes are librdkafka's own, the others Kafka's.
constexpr VerdictRow kTable[] = {
    {-197, Verdict::unknown, "_DESTROY"},  // the producer was destroyed with the message in it
    {-195, Verdict::outage, "_TRANSPORT"},
    {-193, Verdict::outage, "_RESOLVE"},
    {-192, Verdict::unknown, "_MSG_TIMED_OUT"},  // says nothing: ask the metadata for the cause
    {kUnknownPartition, Verdict::retry, "_UNKNOWN_PARTITION"},
    {kUnknownTopic, Verdict::retry, "_UNKNOWN_TOPIC"},
    {-187, Verdict::outage, "_ALL_BROKERS_DOWN"},
    {-181, Verdict::outage, "_SSL"},
    {-169, Verdict::outage, "_AUTHENTICATION"},
    {-152, Verdict::unsent, "_PURGE_QUEUE"},
    {-151, Verdict::unknown, "_PURGE_INFLIGHT"},
    {-150, Verdict::fatal, "_FATAL"},
    {-149, Verdict::fatal, "_INCONSISTENT"},  // librdkafka cannot send the same batch again
    {-148, Verdict::fatal, "_GAPLESS_GUARANTEE"},
    {-144, Verdict::fatal, "_FENCED"},
    {0, Verdict::delivered, "NO_ERROR"},
    {kInvalidMsg, Verdict::poison, "INVALID_MSG"},  // CORRUPT_MESSAGE in Kafka's words: the network may have done it
    {kUnknownTopicOrPart, Verdict::retry, "UNKNOWN_TOPIC_OR_PART"},
    {10, Verdict::poison, "MSG_SIZE_TOO_LARGE"},
    {kTopicException, Verdict::retry, "TOPIC_EXCEPTION"},  // not a topic that can be written to
    {18, Verdict::poison, "RECORD_LIST_TOO_LARGE"},
    {19, Verdict::retry, "NOT_ENOUGH_REPLICAS"},
    {20, Verdict::retry, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"},  // may be there
    {29, Verdict::retry, "TOPIC_AUTHORIZATION_FAILED"},
    {31, Verdict::outage, "CLUSTER_AUTHORIZATION_FAILED"},
    {32, Verdict::poison, "INVALID_TIMESTAMP"},
    {33, Verdict::outage, "UNSUPPORTED_SASL_MECHANISM"},
    {34, Verdict::outage, "ILLEGAL_SASL_STATE"},
    {35, Verdict::outage, "UNSUPPORTED_VERSION"},
    {44, Verdict::retry, "POLICY_VIOLATION"},
    {45, Verdict::fatal, "OUT_OF_ORDER_SEQUENCE_NUMBER"},
    {47, Verdict::fatal, "INVALID_PRODUCER_EPOCH"},
    {53, Verdict::outage, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"},
    {58, Verdict::outage, "SASL_AUTHENTICATION_FAILED"},
    {59, Verdict::fatal, "UNKNOWN_PRODUCER_ID"},
    {87, Verdict::poison, "INVALID_RECORD"},
    {89, Verdict::retry, "THROTTLING_QUOTA_EXCEEDED"},
    {90, Verdict::fatal, "PRODUCER_FENCED"},
};

constexpr bool by_code(const VerdictRow& a, const VerdictRow& b) { return a.code < b.code; }
static_assert(std::is_sorted(std::begin(kTable), std::end(kTable), by_code));

}  // namespace

Verdict verdict_of(std::int32_t code) {
    const auto row =
        std::lower_bound(std::begin(kTable), std::end(kTable), VerdictRow{code, Verdict::outage, ""}, by_code);
    return row != std::end(kTable) && row->code == code ? row->verdict : Verdict::outage;
}

Verdict verdict_of(std::int32_t code, bool fixed_topic) {
    const bool no_such_topic =
        code == kUnknownTopic || code == kUnknownPartition || code == kUnknownTopicOrPart || code == kTopicException;
    return fixed_topic && no_such_topic ? Verdict::outage : verdict_of(code);
}

bool worth_another_try(std::int32_t code) { return code == kInvalidMsg; }

const char* name(Verdict verdict) {
    switch (verdict) {
        case Verdict::delivered: return "delivered";
        case Verdict::unsent: return "unsent";
        case Verdict::unknown: return "unknown";
        case Verdict::outage: return "outage";
        case Verdict::retry: return "retry";
        case Verdict::poison: return "poison";
        case Verdict::fatal: return "fatal";
        case Verdict::refused: return "refused";
        case Verdict::gone: return "gone";
    }
    return "?";
}

std::span<const VerdictRow> verdict_table() { return kTable; }

}  // namespace outbox::core
