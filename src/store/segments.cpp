#include "store/segments.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/spi.hpp"
#include "pg/truncate.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "store/sinks.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

constexpr std::chrono::hours kForgetProgress{1};

// A segment spans a fraction of the retention, so that an event is kept at most one span longer; never less than a few
// seconds, so that no retention makes the ring spin.
static std::int64_t span_s(std::int64_t retention_s) { return std::max<std::int64_t>(retention_s / (kSegments - 4), 5); }

// Whether it is this transaction's turn to change something: the extension stays until its end, and nobody else does it.
static bool alone(bool wait = false) { return pg::lock_extension().present && pg::only_one(pg::Chore::segments, wait); }

static void hold_for_test(const char *where)
{
    while (fault(where) && !pg::termination_requested())
        pg::wait(pg::Wait::idle, -1, 100);
}

// The turn moves by setval, which every writer sees at once; the fence is the next xid read after it. A writer reads the
// turn after it has its xid, so whoever wrote to the old turn has an xid below the fence.
static bool turn_ring(std::int64_t retention_s)
{
    pg::Rows rows = pg::run_once("SELECT s.turn, pg_catalog.clock_timestamp() - s.opened_at > $1 * interval '1 second',"
                                 " (SELECT last_value FROM outbox.turn), s.fence IS NULL"
                                 " FROM outbox.segments s ORDER BY s.turn DESC LIMIT 1", {Param::int8(span_s(retention_s))});
    Cell c[4];
    rows.get(0, c);
    std::int64_t turn = c[0].number;
    // A crash between the steps: the row is there, the sequence has not moved yet. It moves now, and the fence follows.
    bool interrupted = c[2].number < turn;
    if (!interrupted) {
        bool empty = pg::run_once(("SELECT 1 FROM outbox.events_" + std::to_string(segment_of(turn)) + " LIMIT 1").c_str()).size() == 0;
        bool next_is_free = pg::run_once("SELECT 1 FROM outbox.segments WHERE turn = $1 - $2 + 1 AND truncated_at IS NULL",
                                         {Param::int8(turn), Param::int8(kSegments)}).size() == 0;
        if (c[1].number == 0 || empty || !next_is_free)
            return false;
        turn++;
        pg::run_once("INSERT INTO outbox.segments (turn, segment) VALUES ($1, $2)", {Param::int8(turn), Param::int4(segment_of(turn))});
    }
    hold_for_test("before_turn");
    pg::run_once("SELECT pg_catalog.setval('outbox.turn', $1)", {Param::int8(turn)});
    hold_for_test("after_turn");
    pg::run_once("UPDATE outbox.segments SET fence = $1, closed_at = pg_catalog.clock_timestamp() WHERE turn < $2 AND fence IS NULL",
                 {Param::xid8(pg::next_xid()), Param::int8(turn)});
    return true;
}

// The oldest segment, if it is closed, all its writers have ended, its last event was published by every sink at least
// `retention` ago, and no replay has still to read it. Checked again under the lock. outbox.segment_holders says it in words.
static bool truncatable(std::int64_t turn, int segment, std::int64_t retention_s)
{
    std::string events = "outbox.events_" + std::to_string(segment);
    // With no sink nothing is truncated. A sink that is dropped keeps its claim for the retention, one that is halted for ever.
    std::string sql =
        "SELECT EXISTS (SELECT FROM outbox.sinks) AND NOT EXISTS (SELECT FROM outbox.servers WHERE home IS DISTINCT FROM $3)"
        " AND (SELECT fence <= pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) FROM outbox.segments WHERE turn = $1)"
        " AND NOT EXISTS (SELECT FROM outbox.sinks s JOIN outbox.lanes l USING (sink_id) WHERE"
        "   (s.dropped_at IS NULL OR s.dropped_at > pg_catalog.clock_timestamp() - $2 * interval '1 second')"
        "   AND NOT coalesce((SELECT true FROM outbox.progress p WHERE p.sink_id = l.sink_id AND p.lane = l.lane"
        // of any set of lanes: a new set starts where the old one stood
        "     AND p.recorded_at <= pg_catalog.clock_timestamp() - $2 * interval '1 second'"
        "     AND p.\"position\" >= coalesce((SELECT max(id) FROM " + events + "), 0)"
        "     AND p.late_seen IS NULL AND pg_catalog.pg_snapshot_xmin(p.seen) >= (SELECT fence FROM outbox.segments WHERE turn = $1)"
        "     ORDER BY p.recorded_at DESC LIMIT 1), false))"
        " AND NOT EXISTS (SELECT FROM outbox.replay_requests r JOIN outbox.sinks s USING (sink_id) WHERE r.finished_at IS NULL AND s.dropped_at IS NULL"
        "   AND r.\"position\" < (SELECT max(id) FROM " + events + ") AND r.last_id >= (SELECT min(id) FROM " + events + "))";
    std::string here = home();
    return pg::run_once(sql.c_str(), {Param::int8(turn), Param::int8(retention_s), Param::text(here)}).number() != 0;
}

static bool truncate_oldest(std::int64_t retention_s)
{
    pg::Rows rows = pg::run_once("SELECT turn, segment FROM outbox.segments WHERE truncated_at IS NULL AND fence IS NOT NULL"
                                 " AND turn > (SELECT max(turn) FROM outbox.segments) - $1 ORDER BY turn LIMIT 1", {Param::int8(kSegments)});
    if (rows.size() == 0)
        return false;
    Cell c[2];
    rows.get(0, c);
    std::int64_t turn = c[0].number;
    int segment = static_cast<int>(c[1].number);
    if (!truncatable(turn, segment, retention_s) || !pg::lock_segment_now(segment) || !truncatable(turn, segment, retention_s))
        return false;
    pg::run_once(("UPDATE outbox.segments SET (first_id, last_id) = (SELECT min(id), max(id) FROM outbox.events_" + std::to_string(segment) +
                  ") WHERE turn = $1").c_str(), {Param::int8(turn)});
    pg::truncate_segment(segment);
    hold_for_test("after_truncation");
    pg::run_once("UPDATE outbox.segments SET truncated_at = pg_catalog.clock_timestamp() WHERE turn = $1", {Param::int8(turn)});
    return true;
}

// What was remembered of sinks that were dropped longer than the retention ago.
static void forget_dropped(std::int64_t retention_s)
{
    // Whoever creates a server of that name holds the row, or waits for us.
    pg::Rows gone = pg::run_once("SELECT sink_id FROM outbox.sinks WHERE dropped_at < pg_catalog.clock_timestamp() - $1 * interval '1 second'"
                                 " AND NOT EXISTS (SELECT FROM outbox.parked_events p WHERE p.sink_id = sinks.sink_id) FOR UPDATE SKIP LOCKED",
                                 {Param::int8(retention_s)});
    pg::Cell c[1];
    for (std::size_t i = 0; i < gone.size(); i++) {
        gone.get(i, c);
        forget_sink(static_cast<std::int32_t>(c[0].number));
    }
}

// Old progress rows, which told what was published when, go with the events that they told of. The newest of a lane stays,
// and so does what truncation asks for: a row that is older than the retention. It reads the whole table.
static void forget_progress(std::int64_t retention_s)
{
    pg::run_once("DELETE FROM outbox.progress d WHERE d.recorded_at < pg_catalog.clock_timestamp() - ($1 * 2 + 3600) * interval '1 second'"
                 " AND EXISTS (SELECT FROM outbox.progress n WHERE n.sink_id = d.sink_id AND (n.epoch, n.batch) > (d.epoch, d.batch)"
                 "   AND (n.lane = d.lane OR n.epoch > d.epoch) AND n.recorded_at < pg_catalog.clock_timestamp() - $1 * interval '1 second')",
                 {Param::int8(retention_s)});
}

// In a transaction of its own, if nobody else is at it.
template <class Step>
static void by_itself(Step &&step)
{
    pg::Transaction transaction;
    if (alone())
        step();
    transaction.commit();
}

void keep_segments(std::int64_t retention_s)
{
    by_itself([=] { turn_ring(retention_s); });
    for (bool more = true; std::exchange(more, false);)
        by_itself([=, &more] { more = truncate_oldest(retention_s); });
    by_itself([=] { forget_dropped(retention_s); });
    static std::chrono::steady_clock::time_point forget_at;
    if (auto now = std::chrono::steady_clock::now(); now >= forget_at) {
        by_itself([=] {
            forget_progress(retention_s);
            forget_at = now + kForgetProgress;
        });
    }
}

Kept keep_segments_now(std::int64_t retention_s)
{
    Kept kept;
    if (!alone(true))
        return kept;
    kept.turned = turn_ring(retention_s);
    while (truncate_oldest(retention_s))
        kept.truncated++;
    forget_dropped(retention_s);
    forget_progress(retention_s);
    return kept;
}

}  // namespace outbox::store
