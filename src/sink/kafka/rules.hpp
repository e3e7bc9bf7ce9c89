// What a topic's own settings demand of an event, as far as the sink's user may know it.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "core/event.hpp"
#include "core/wire.hpp"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_op_s;

namespace outbox::sink::kafka {

// Learned by DescribeConfigs, in the background: a producer asks for each topic when it first sends to it, and again before it
// refuses an event for what it learned a while ago. Who may not ask learns nothing, and the broker judges.
struct Rules {
    using Clock = std::chrono::steady_clock;

    std::size_t largest = 0;  // max.message.bytes; 0: not known
    bool compacted = false;   // cleanup.policy
    int in_sync = 0;          // min.insync.replicas; 0: not known
    Clock::time_point asked{}, learned{};

    bool never_asked() const { return asked == Clock::time_point{}; }
    bool answer_may_come() const { return asked > learned && Clock::now() - asked < std::chrono::seconds(1); }
    bool fresh() const { return learned >= asked && Clock::now() - learned < std::chrono::milliseconds(500); }
};

// The answer comes as an event in `queue`.
void ask_rules(rd_kafka_s* rk, rd_kafka_queue_s* queue, Rules& rules, const char* topic);
// Such an event's answer: the topic's name (empty: none), and its rules; all unknown if the question was refused.
std::string answered_rules(rd_kafka_op_s* event, Rules& rules);

// The bytes of a request's record batch that has this event alone, without compression: what max.message.bytes limits.
std::size_t batch_size(const core::Event& event, const core::Encoder& encoder);

}  // namespace outbox::sink::kafka
