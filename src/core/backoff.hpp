// How long to wait after the n-th failure in a row: exponential with full jitter, so that relays that failed together do
// not come back together. Time and randomness are the caller's.
#pragma once

#include <cstdint>

namespace outbox::core {

class Backoff {
public:
    // The ceiling doubles from `first_ms` up to `most_ms`, and no wait is shorter than half of `first_ms`.
    constexpr Backoff(std::int64_t first_ms, std::int64_t most_ms)
        : first_ms_(first_ms < 1 ? 1 : first_ms), most_ms_(most_ms < first_ms_ ? first_ms_ : most_ms) {}

    // Counts a failure and says how many milliseconds to wait: evenly between the shortest and the ceiling, by `random`
    // (64 evenly distributed bits).
    constexpr std::int64_t next_ms(std::uint64_t random) {
        const std::int64_t shortest = (first_ms_ + 1) / 2;
        const auto choices = static_cast<std::uint64_t>(ceiling_ms() - shortest + 1);
        if (failures_ < kManyFailures) ++failures_;
        return shortest + static_cast<std::int64_t>(random % choices);
    }

    // After a success.
    constexpr void reset() { failures_ = 0; }

    constexpr int failures() const { return failures_; }

    // The longest that next_ms() can say next.
    constexpr std::int64_t ceiling_ms() const {
        std::int64_t ceiling = first_ms_;
        for (int i = 0; i < failures_ && ceiling < most_ms_; ++i)
            ceiling = ceiling > most_ms_ / 2 ? most_ms_ : ceiling * 2;
        return ceiling;
    }

private:
    static constexpr int kManyFailures = 1'000'000;

    std::int64_t first_ms_;
    std::int64_t most_ms_;
    int failures_ = 0;
};

}  // namespace outbox::core
