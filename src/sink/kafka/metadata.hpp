// What the cluster says about a topic, in words for last_error.
#pragma once

#include <string>

struct rd_kafka_s;
struct rd_kafka_metadata_topic;

namespace outbox::sink::kafka {

struct Finding {
    bool answered = false;  // some broker did
    std::string words;      // what is wrong; empty: nothing
    int in_sync = 0;        // the fewest replicas in sync that a partition of it has; 0: not known
};

// Asks the cluster (waits up to timeout_ms) what is wrong with a topic: its own error, partitions without a leader,
// replicas out of sync, or that no broker answered. Not for the relay's thread.
Finding metadata_finding(rd_kafka_s* rk, const std::string& topic, int timeout_ms);

// The same of an answer that is there: its error, or partitions without a leader. Nothing about replicas, which are no
// reason not to begin.
std::string topic_words(const rd_kafka_metadata_topic& topic);

}  // namespace outbox::sink::kafka
