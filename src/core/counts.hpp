// What a relay counts between two writes to outbox.counters. Plain numbers: counting allocates nothing and costs an event a few
// comparisons.
#pragma once

#include <cstdint>

#include "core/event.hpp"
#include "core/histogram.hpp"

namespace outbox::core {

// Upper bounds, as the view outbox.metrics has them in seconds and events. What is stored counts by these: other bounds need other
// columns.
inline constexpr std::int64_t kDeliveryBounds[] = {1'000,   2'500,   5'000,     10'000,    25'000,    50'000,     100'000,     250'000,
                                                   500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};
inline constexpr std::int64_t kBatchBounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1'000, 2'000, 5'000, 10'000};

// Delivered events are in outbox.progress, which is exact; only those that had been parked are not.
struct Counts {
    std::int64_t unparked = 0;  // delivered after they had been parked
    std::int64_t bytes = 0;     // of the payloads delivered
    std::int64_t late = 0;      // delivered, of a transaction that committed after the lane had come past its ids

    std::int64_t outages = 0;     // how often the sink was found to be down
    std::int64_t stuck = 0;       // attempts that a topic or partition did not take
    std::int64_t poison = 0;      // events that can never be delivered
    std::int64_t producers = 0;   // producers that failed for good and were made anew
    std::int64_t failures = 0;    // errors of PostgreSQL or our own
    std::int64_t overtaking = 0;  // batches that broke a key's order: must never happen

    std::int64_t parked_retry = 0, parked_dead = 0, parked_behind = 0;

    // From created_at to the acknowledgement of the batch. The time of the commit is known to nobody cheaply, so what the writer's
    // transaction still did after the event is in it.
    Histogram<kDeliveryBounds> delivery;
    Histogram<kBatchBounds> batch;  // events delivered by each batch that delivered any

    bool any = false;  // something was counted

    void delivered(const Event& event, std::int64_t now_us) {
        std::int64_t age = now_us - event.created_at;
        delivery.add(age > 0 ? age : 0);
        bytes += static_cast<std::int64_t>(event.payload.size());
        any = true;
    }
    void count(std::int64_t& what, std::int64_t n = 1) {
        what += n;
        any = any || n > 0;
    }
};

}  // namespace outbox::core
