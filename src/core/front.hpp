// Where to begin reading a table from whose front rows are deleted. Pure C++.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "core/moment.hpp"

namespace outbox::core {

// Deleted rows stay in the table and its index, dead, for as long as somebody holds an old snapshot, and whoever begins at the front passes by
// all of them. Where that takes long a look begins where the last one ended; at the front, where it finds what was committed
// late, for a twentieth of the time that the thread works.
class Front {
public:
    // In the order of a time and of an id. The smallest: the front itself.
    struct Place {
        std::int64_t time = std::numeric_limits<std::int64_t>::min();  // PostgreSQL's microseconds; the smallest is its -infinity
        std::int64_t id = 0;
    };

    // Where a look is to begin.
    Place begin(Moment now)
    {
        began_ = now;
        at_front_ = now.time >= again_at_;
        return at_front_ ? Place{} : place_;
    }

    // It is over. How long until one may begin at the front, where this one did not; none, if it did.
    std::chrono::nanoseconds end(Moment now)
    {
        auto worked = now.worked - began_.worked;
        if (at_front_ && worked > kShort)
            again_at_ = now.time + kShare * worked;
        return at_front_ ? std::chrono::nanoseconds{} : std::max<std::chrono::nanoseconds>(again_at_ - now.time, {});
    }

    // Where the next one may begin.
    void move(Place place) { place_ = place; }

private:
    static constexpr int kShare = 20;
    static constexpr std::chrono::milliseconds kShort{1};

    Place place_;
    Moment began_{};
    std::chrono::steady_clock::time_point again_at_{};
    bool at_front_ = false;
};

}  // namespace outbox::core
