// The topics that a producer has sent to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sink/kafka/handle.hpp"
#include "sink/kafka/rules.hpp"

struct rd_kafka_s;

namespace outbox::sink::kafka {

struct Destination {
    Topic handle;
    bool proven = false;       // something was delivered to it, and nothing has failed since
    std::int32_t blocked = 0;  // code of a failure since the producer was last empty
    Rules rules;
};

// Handles live as long as the producer: librdkafka keeps the topic anyway, with the sequence numbers of its partitions.
class Destinations {
public:
    // Makes it when it is new. nullptr: librdkafka refuses the topic, see rd_kafka_last_error().
    Destination* of(rd_kafka_s* rk, std::string_view topic);
    // One that is known, or nullptr.
    Destination* known(std::string_view topic);
    const Destination* known(std::string_view topic) const { return const_cast<Destinations*>(this)->known(topic); }
    // Of a report: the topic that rd_kafka_message_t names, or nullptr.
    Destination* of(const rd_kafka_topic_s* topic);

    void prove(Destination& destination) {
        if (!destination.proven) unproven_--;
        destination.proven = true;
    }
    void block(Destination& destination, std::int32_t code);
    bool all_proven() const { return unproven_ == 0; }

    // The producer is empty: nothing is left that a new event could overtake.
    void unblock();
    void clear();

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };

    std::unordered_map<std::string, Destination, Hash, std::equal_to<>> map_;
    Destination* last_ = nullptr;  // what of() gave the last time; most events go where the one before went
    std::string_view last_topic_;
    std::size_t unproven_ = 0;
    bool any_blocked_ = false;
};

}  // namespace outbox::sink::kafka
