// Reading the log: what is pending for a lane, as batches. C++ regime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/arena.hpp"
#include "core/event.hpp"
#include "core/glob.hpp"
#include "core/snapshot.hpp"
#include "pg/spi.hpp"
#include "store/lanes.hpp"

namespace outbox::store {

// What a pass of the publish loop handles: completely described before its first event is produced. Used again for other batches: its
// memory stays.
struct Batch {
    std::vector<core::Event> events;  // late ones first, then new ones, each part in id order; of this lane and sink alone
    std::size_t late = 0;             // how many of them are late
    std::size_t skipped = 0;          // left out: delivered already, and not recorded yet
    bool late_complete = true;        // there are no more late ones under this snapshot
    bool more = false;                // a limit was reached: look again at once
    bool moved = false;               // `after` differs from `before` in more than what was seen
    core::Snapshot snapshot;          // what it was read under
    Progress before, after;           // the lane's progress, and what it is once all events are done
    core::Arena bytes;                // of the events

    void keep(const core::Event &event);  // a copy, as the last one
    void clear();

    // It was read before the batch before it was recorded, as of what that one would leave behind. Now that is so.
    void follow(const Progress &recorded);

    // The lane's progress once the first n events are done.
    Progress after_first(std::size_t n) const;

    // The transactions whose commits may not be on disk yet: those at or above `seen`'s xmin.
    std::vector<std::uint64_t> xids(std::int64_t floor) const;
};

struct Limits {
    std::size_t events = 10'000;
    std::size_t bytes = 16u << 20;
};

// The relay's query: an optimised form of the predicate
//     id > position OR (id > floor AND NOT pg_visible_in_snapshot(xid, seen))
// of which the plain form is the view outbox.pending. It reads the partitions by name, oldest unfinished first.
class Log {
public:
    void configure(const Lane &lane, const core::EventFilter &filter, std::int64_t floor);
    // The turns of the ring are read again, all late transactions looked for in full at the next read.
    void restart();

    // Inside a Transaction, which the batch may outlive. `skip`: ids that were delivered already and are left out.
    void read(Batch &batch, const Progress &progress, const std::optional<Cap> &cap, Limits limits, const std::unordered_set<std::int64_t> &skip);

    // The newest fence of the ring that was read: an idle lane must record that it has seen past it, or retention waits.
    std::uint64_t newest_fence() const { return newest_fence_; }

private:
    struct Turn {
        std::int64_t turn;
        int segment;
        std::uint64_t fence;  // transactions from here on do not write to it; 0: it may still be the current one
        bool closed_for(const core::Snapshot &snapshot) const { return fence != 0 && snapshot.xmin >= fence; }
    };
    struct Reading;

    void load_turns(std::int64_t current);
    void drop_finished_turns(const Progress &progress);
    void prepare_statements();
    void read_late(Reading &r);
    void read_new(Reading &r);
    std::vector<std::int64_t> late_ids(Reading &r);
    std::vector<std::uint64_t> ended(const Reading &r);
    const std::vector<std::uint64_t> &begun_after(const Reading &r);
    void take(Reading &r, const pg::Cell *cells);

    Lane lane_;
    core::EventFilter filter_;
    std::int64_t floor_ = 0;
    std::vector<Turn> turns_;  // those that may hold something for us, oldest first
    bool turns_known_ = false;
    std::uint64_t newest_fence_ = 0;
    bool full_look_ = true;    // evaluate the predicate in full, over all partitions
    // What the last look in full found, for as long as the events that it found late are read, batch by batch.
    struct BegunAfter {
        core::Snapshot seen, late_seen;
        std::int64_t position;
        std::vector<std::uint64_t> xids;
    };
    std::optional<BegunAfter> begun_after_;
    std::string new_sql_, late_sql_, by_id_sql_;
    pg::Statement new_{nullptr}, late_{nullptr}, by_id_{nullptr};
};

}  // namespace outbox::store
