// What a delivery report means for the event; for Kafka in one table from librdkafka code to verdict (for HTTP: http_status.hpp).
#pragma once

#include <cstdint>
#include <span>

namespace outbox::core {

enum class Verdict : std::uint8_t {
    delivered,
    unsent,   // purged before it was sent: not a verdict on the event
    unknown,  // purged or timed out in flight: may be there, not a verdict on the event
    outage,   // the sink as a whole: back off, count nothing; every unlisted code
    retry,    // this topic or key for now: park with `retry`
    poison,   // this event (a refused request fails its neighbours too: bisect before calling it dead)
    fatal,    // the producer: make a new one
    refused,  // this event, for certain, and nobody with it: park with `retry`, and try again by the sink's schedule
    gone,     // the sink says that it is no more: send nothing until somebody has looked
};

// `code` is an rd_kafka_resp_err_t (its numbers are Kafka's protocol and librdkafka's ABI; the Kafka sink
// checks them by static_assert).
Verdict verdict_of(std::int32_t code);

// The same with what the relay knows: where every event of the sink goes to this one topic, a topic that does not exist
// is an outage of the sink.
Verdict verdict_of(std::int32_t code, bool fixed_topic);

// A refusal that need not be the event's fault: try once more before bisecting.
bool worth_another_try(std::int32_t code);

const char* name(Verdict verdict);

// The table itself, for tests: sorted by code.
struct VerdictRow {
    std::int32_t code;
    Verdict verdict;
    const char* name;  // as rd_kafka_err2name() says it
};
std::span<const VerdictRow> verdict_table();

}  // namespace outbox::core
