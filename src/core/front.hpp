// Where to begin reading a table from whose front rows are deleted. Pure C++.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace outbox::core {

// Deleted rows stay in the table and its index, dead, for as long as somebody holds an old snapshot, and whoever begins at the front passes by
// all of them. So a look begins where the last one ended; at the front, where it finds what was committed late, for a twentieth of the
// time at most.
class Front {
public:
    using Clock = std::chrono::steady_clock;
    // In the order of a time and of an id. The smallest: the front itself.
    struct Place {
        std::int64_t time = std::numeric_limits<std::int64_t>::min();  // PostgreSQL's microseconds; the smallest is its -infinity
        std::int64_t id = 0;
    };

    // Where a look that begins now is to begin.
    Place begin(Clock::time_point now)
    {
        began_ = now;
        if (now < again_at_)
            return place_;
        at_front_ = true;
        return {};
    }

    // It is over, and what it did is committed: nothing was left before this place. A look that failed does not call it, and the next
    // one begins where that one did.
    void end(Place place, Clock::time_point now)
    {
        place_ = place;
        if (at_front_)
            again_at_ = now + std::min<Clock::duration>(kMost, kShare * (now - began_));
        whole_ = std::exchange(at_front_, false);
    }

    // How long until a look finds all that there is; none if the last one did.
    Clock::duration blind(Clock::time_point now) const { return whole_ ? Clock::duration{} : std::max(again_at_ - now, Clock::duration{}); }

private:
    static constexpr int kShare = 20;
    static constexpr std::chrono::seconds kMost{10};  // a look may have taken long since the machine was busy

    Place place_;
    Clock::time_point began_{}, again_at_{};
    bool at_front_ = false, whole_ = false;
};

}  // namespace outbox::core
