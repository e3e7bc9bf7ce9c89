// Where to begin reading a table from whose front rows are deleted. Pure C++.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace outbox::core {

// Deleted rows stay in the table and its index, dead, for as long as somebody holds an old snapshot, and whoever begins at the front passes by
// all of them. Where that takes long a look begins where the last one ended; at the front, where it finds what was committed
// late, for a twentieth of the time that the thread works.
class Front {
public:
    using Clock = std::chrono::steady_clock;
    // In the order of a time and of an id. The smallest: the front itself.
    struct Place {
        std::int64_t time = std::numeric_limits<std::int64_t>::min();  // PostgreSQL's microseconds; the smallest is its -infinity
        std::int64_t id = 0;
    };

    // Where a look is to begin.
    Place begin(Clock::time_point now)
    {
        at_front_ = now >= again_at_;
        return at_front_ ? Place{} : place_;
    }

    // What it took: time that this thread worked, since the machine may be busy.
    void looked(Clock::duration worked, Clock::time_point now)
    {
        if (at_front_ && worked > kShort)
            again_at_ = now + kShare * worked;
    }

    // Where the next look may begin. Who did not come to look leaves it where it was.
    void move(Place place) { place_ = place; }

    // How long until a look may begin at the front, where the last one did not; none, if it did.
    Clock::duration blind(Clock::time_point now) const { return at_front_ ? Clock::duration{} : std::max(again_at_ - now, Clock::duration{}); }

private:
    static constexpr int kShare = 20;
    static constexpr std::chrono::milliseconds kShort{1};

    Place place_;
    Clock::time_point again_at_{};
    bool at_front_ = false;
};

}  // namespace outbox::core
