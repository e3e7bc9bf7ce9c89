// What a process remembers of an endpoint beyond one Sink object: how many requests at once it takes, the rate, and when it wants
// to be tried again. The producers of a sink's live and of its parked events share it; they take turns.
#pragma once

#include <algorithm>
#include <chrono>

#include "core/options.hpp"

namespace outbox::sink::http {

class Endpoint {
public:
    using Clock = std::chrono::steady_clock;

    // The one of this sink; made at first sight, with what the options say now.
    static Endpoint& of(const core::SinkOptions& options);

    void configure(int concurrency, double per_second, Clock::time_point now);

    // Requests in flight, at most: halved when the endpoint says that it is too much, and slowly more again.
    int at_once() const { return at_once_; }
    void strained() {
        at_once_ = std::max(at_once_ / 2, 1);
        taken_ = 0;
    }
    void took() {
        not_before_ = {};
        if (at_once_ < most_ && ++taken_ >= kPatience * at_once_) {
            at_once_++;
            taken_ = 0;
        }
    }

    // True: a request may leave now, and is counted. Else it may at next_turn().
    bool take_turn(Clock::time_point now);
    Clock::time_point next_turn() const { return next_turn_; }

    void wait_until(Clock::time_point time) { not_before_ = std::max(not_before_, time); }
    Clock::time_point not_before() const { return not_before_; }

private:
    static constexpr int kPatience = 4;  // as many rounds of deliveries before one more is tried

    int most_ = 1, at_once_ = 1, taken_ = 0;
    std::chrono::nanoseconds apart_{0};  // between two requests; 0: no limit
    Clock::time_point next_turn_{}, not_before_{};
};

}  // namespace outbox::sink::http
