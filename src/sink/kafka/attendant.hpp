// The calls of librdkafka that wait, taken off the relay's thread: flushing, asking for metadata, destroying. Owns the
// client from the moment it is made.
//
// Why a thread for a flush: a batch's last messages would wait for linger.ms, and rd_kafka_flush() skips that only
// while it is being called. With reports taken as events a call with time-out 0 is over before librdkafka's own threads
// have woken, and a call with 1 ms always takes 1 ms. From a thread of its own it costs the relay a wake-up: measured
// 0.06 ms instead of 1.2 ms for a batch of one, and as much as streaming for large ones.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct rd_kafka_s;

namespace outbox::sink::kafka {

class Attendant {
public:
    // Starts the thread, with all signals blocked. Throws std::system_error when none can be had: then `rk` is still
    // the caller's.
    explicit Attendant(rd_kafka_s* rk);
    ~Attendant();
    Attendant(const Attendant&) = delete;
    Attendant& operator=(const Attendant&) = delete;

    // Both return at once.
    void flush();
    void inquire(std::string_view topic);

    // What the cluster's metadata said against the topic when last asked; empty: nothing, or not asked yet.
    std::string finding(std::string_view topic) const;
    // The fewest replicas in sync that a partition of it had then; 0: not known.
    int in_sync(std::string_view topic) const;
    // Whether some broker answered then; nothing: not asked, or no answer yet to the latest question.
    std::optional<bool> answered(std::string_view topic) const;

    // Destroys the client; the last call. False when that takes longer than `limit`: the thread goes on alone and
    // touches nothing of ours.
    bool destroy(std::chrono::milliseconds limit);

private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

// Clients of this process that are not destroyed yet.
int clients();

}  // namespace outbox::sink::kafka
