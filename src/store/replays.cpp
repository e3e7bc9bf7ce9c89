#include "store/replays.hpp"

#include <algorithm>

#include "pg/session.hpp"
#include "pg/spi.hpp"
#include "store/rows.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

constexpr std::int64_t kWindow = 20'000;  // ids that one reading looks at

bool next_replay(std::int32_t sink_id, Replay &replay)
{
    static pg::Statement oldest("SELECT replay_id, since, until, aggregate_id, \"position\", last_id FROM outbox.replay_requests"
                                " WHERE sink_id = $1 AND finished_at IS NULL ORDER BY replay_id LIMIT 1");
    pg::Rows rows = oldest.run({Param::int4(sink_id)});
    if (rows.size() == 0)
        return false;
    Cell c[6];
    rows.get(0, c);
    replay = {c[0].number, c[1].number, c[2].number, !c[3].null, std::string(c[3].bytes), c[4].number, c[5].number};
    return true;
}

void read_replay(const Replay &replay, std::int32_t sink_id, const SinkConfig &config, Limits limits, Batch &batch)
{
    // The predicate of the log, the other way round. The lookups are scalar, so that none of them becomes a join that has to be
    // sorted: rows come by the primary keys of the partitions, and reading ends with the last one that is wanted.
    static pg::Statement next(
        "WITH lane AS MATERIALIZED (SELECT * FROM outbox.lane_progress WHERE sink_id = $3)"
        " SELECT e.id, e.xid, e.event_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.headers::text, e.topic, e.created_at"
        " FROM outbox.events e WHERE e.id > $1 AND e.id <= $2 AND e.created_at >= $5 AND e.created_at < $6"
        "   AND ($7::text IS NULL OR e.aggregate_id = $7) AND outbox.takes($8, e.aggregate_type, e.event_type)"
        "   AND (SELECT p.\"position\" >= e.id AND (e.id <= p.floor OR pg_catalog.pg_visible_in_snapshot(e.xid, p.seen)"
        "          OR coalesce(e.id <= p.late_position AND pg_catalog.pg_visible_in_snapshot(e.xid, p.late_seen), false))"
        "        FROM lane p WHERE p.lane = outbox.lane_of(e.aggregate_id, e.id, p.lanes))"
        "   AND (SELECT true FROM outbox.parked_events k WHERE k.sink_id = $3 AND k.id = e.id) IS NOT TRUE"
        "   AND (SELECT true FROM outbox.discarded d WHERE d.event_id = e.event_id AND d.id = e.id AND d.sink = $9 LIMIT 1) IS NOT TRUE"
        " ORDER BY e.id LIMIT $4");
    batch.clear();
    std::int64_t to = std::min(replay.last_id, replay.position + kWindow);
    batch.after.position = to;
    std::size_t bytes = 0;
    pg::ReadView view;
    next.each({Param::int8(replay.position), Param::int8(to), Param::int4(sink_id), Param::int8(static_cast<std::int64_t>(limits.events)),
               Param::timestamptz(replay.since), Param::timestamptz(replay.until),
               replay.of_one_key ? Param::text(replay.aggregate_id) : Param::none(Param::Type::text), Param::text(config.options.events),
               Param::text(config.name)},
              [&](const Cell *cells) {
                  core::Event e = event_of(cells);
                  e.replayed = true;
                  batch.keep(e);
                  bytes += e.payload.size() + e.headers.size() + 200;
                  bool full = batch.events.size() == limits.events || bytes >= limits.bytes;
                  if (full)
                      batch.after.position = e.id;
                  return !full;
              });
}

bool record_replay(const Replay &replay, const Slice &slice)
{
    static pg::Statement update(
        "UPDATE outbox.replay_requests SET \"position\" = $2, sent = sent + $3, skipped = skipped + $4, last_error = coalesce(nullif($5, ''), last_error),"
        " finished_at = CASE WHEN finished_at IS NULL AND $2 >= last_id THEN pg_catalog.clock_timestamp() ELSE finished_at END"
        " WHERE replay_id = $1");
    update.run({Param::int8(replay.id), Param::int8(slice.position), Param::int8(slice.sent), Param::int8(slice.skipped), Param::text(slice.error)});
    return slice.position >= replay.last_id;
}

}  // namespace outbox::store
