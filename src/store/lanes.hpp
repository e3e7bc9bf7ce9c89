// Lanes: claiming one, how far it has come, recording a batch, changing their number. C++ regime.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/snapshot.hpp"

namespace outbox::store {

// Where a lane's reading stands: pending(event) := id > position, or late: id > floor and not visible in `seen`.
// While `late_seen` is set, of the late events that it sees those up to late_position are done.
struct Progress {
    std::int64_t batch = 0;  // numbers the rows of a lane
    std::int64_t position = 0;
    core::Snapshot seen;
    std::uint64_t next_xid = 0;  // transactions from here on had not begun when all up to `position` was read
    std::int64_t late_position = 0;
    std::optional<core::Snapshot> late_seen;
    std::int64_t published = 0;
    // For a sink that takes several events in a request: what the next requests hold, by the ids of the events. Fixed before the first
    // attempt, so that each comes again with the same events, whatever happens in between.
    std::vector<std::vector<std::int64_t>> requests;
};

// Where a change of the number of lanes makes the old lanes stop and the new ones begin.
struct Cap {
    std::int32_t lanes = 0;
    std::int64_t position = 0;
    core::Snapshot seen;
    std::uint64_t next_xid = 0;
};

struct Lane {
    std::int32_t sink_id = 0;
    std::int32_t lane = 0;
    std::int32_t epoch = 0;  // set of lanes
    std::int32_t lanes = 0;  // of this set
};

// The lane's row and newest progress, without a lock; false: the lane is not there (any more).
bool load_lane(Lane &lane, Progress &progress, std::optional<Cap> &cap);

// Locks the lane for the rest of the transaction without waiting, and looks whether what was read from `progress` still
// stands: false if somebody else has the lane, its set has changed, a cap came or went, or another batch was recorded.
// A statement of its own: one that locked the lane and read the progress together would return stale progress.
bool claim(const Lane &lane, const Progress &progress, bool capped);

// The locks that a record needs. Taken before anything is sent: from then on interrupts are held, and who waits so for a table that
// somebody has locked can neither be terminated nor let DROP DATABASE go on.
void lock_records();

// Appends `progress` as the lane's newest row. `events`: how many this batch delivered.
void record(const Lane &lane, const Progress &progress, std::int32_t events);

// Deletes progress rows that nothing needs: all but the newest and, for outbox.status, about one a minute. Those of which it is decided are
// not looked at again: deleted ones stay in the index for as long as somebody holds an old snapshot. (If the transaction of a step fails, what
// it would have deleted stays until it is older than the retention.)
class Thinning {
public:
    explicit Thinning(std::int32_t epoch = 0) : epoch_(epoch) {}
    // `newest`: the number of the row that was just recorded.
    void step(const Lane &lane, std::int64_t newest);

private:
    std::int32_t epoch_;
    std::int64_t decided_ = -1;  // rows up to it
    std::int64_t mark_ = -1;     // rows up to it are older than marked_at_, and so decided by a step that is late enough
    std::chrono::steady_clock::time_point marked_at_{};
};

// ---- changing the number of lanes -----------------------------------------------------------------------------------------
// Called by the relay of lane 0 when the sink's option differs from the number in force; each is a transaction of its own.
enum class LaneChange { none, waiting, done };
// Sets a point beyond all lanes where they stop, unless there is one; then, when all have come to it, puts the new set
// there. `done`: the set of lanes is new and this relay must load it.
LaneChange change_lanes(const Lane &lane, std::int32_t wanted);

}  // namespace outbox::store
