#include "store/parked.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/buffer.hpp"
#include "core/options.hpp"
#include "pg/spi.hpp"
#include "store/rows.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

static const char *name(ParkReason reason)
{
    switch (reason) {
    case ParkReason::retry: return "retry";
    case ParkReason::dead: return "dead";
    case ParkReason::behind: return "behind";
    }
    return "";
}

void park(const Lane &lane, const std::vector<ToPark> &events)
{
    std::map<std::tuple<std::string, ParkReason, std::string, std::int64_t>, std::vector<std::int64_t>> groups;
    for (const ToPark &e : events)
        groups[{e.destination, e.reason, e.error, e.pause_ms}].push_back(e.id);
    static pg::Statement insert(
        "INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes,"
        "       headers, topic, created_at, destination, reason, attempts, next_attempt_at, last_error)"
        " SELECT $1, e.id, e.event_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.headers, e.topic,"
        "        e.created_at, $3, $4, CASE WHEN $4 = 'behind' THEN 0 ELSE 1 END,"
        "        CASE WHEN $4 = 'retry' THEN pg_catalog.clock_timestamp() + $6 * (0.9 + pg_catalog.random() / 5) * interval '1 millisecond' END,"
        "        nullif($5, '')"
        " FROM outbox.events e WHERE e.id = ANY ($2) ON CONFLICT DO NOTHING");
    for (const auto &[group, ids] : groups) {
        const auto &[destination, reason, error, pause_ms] = group;
        insert.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size()), Param::text(destination), Param::text(name(reason)),
                    Param::text(error), Param::int8(pause_ms)});
    }
}

bool readdress(const Lane &lane, const core::Route &route)
{
    if (!route.good())
        return true;  // the sink is disabled
    pg::Rows kinds = pg::run_once("SELECT DISTINCT destination, topic, aggregate_type, event_type FROM outbox.parked_events WHERE sink_id = $1",
                                  {Param::int4(lane.sink_id)});
    bool all = true;
    for (std::size_t i = 0; i < kinds.size(); i++) {
        Cell c[4];
        kinds.get(i, c);
        core::Event event;
        event.topic = c[1].bytes;
        event.aggregate_type = c[2].bytes;
        event.event_type = c[3].bytes;
        core::Buffer buffer;
        std::string_view destination = route.to(event, buffer);
        if (destination == c[0].bytes)
            continue;
        all &= pg::run_once(
            "WITH these AS MATERIALIZED (SELECT p.id FROM outbox.parked_events p"
            "   WHERE p.sink_id = $1 AND p.destination = $3 AND p.topic IS NOT DISTINCT FROM $4"
            "     AND p.aggregate_type IS NOT DISTINCT FROM $5 AND p.event_type = $6 AND outbox.lane_of(p.aggregate_id, p.id, $7) = $8),"
            " moved AS (UPDATE outbox.parked_events SET destination = $2 WHERE sink_id = $1 AND id IN (SELECT p.id FROM outbox.parked_events p"
            "   WHERE p.sink_id = $1 AND p.id IN (SELECT id FROM these) FOR UPDATE SKIP LOCKED) RETURNING id)"
            " SELECT (SELECT pg_catalog.count(*) FROM these) = (SELECT pg_catalog.count(*) FROM moved)",
                     {Param::int4(lane.sink_id), Param::text(destination), Param::text(c[0].bytes), Param::text(c[1].bytes),
                      Param::text(c[2].bytes), Param::text(c[3].bytes), Param::int4(lane.lanes), Param::int4(lane.lane)}).number() != 0;
    }
    return all;
}

void load_gate(const Lane &lane, bool hold, core::KeyGate &gate)
{
    gate.clear();
    pg::Rows rows = pg::run_once("SELECT DISTINCT destination, aggregate_id FROM outbox.parked_events"
                                 " WHERE sink_id = $1 AND aggregate_id IS NOT NULL AND ($2 OR reason <> 'dead')"
                                 " AND ($3 = 1 OR outbox.lane_of(aggregate_id, id, $3) = $4)",
                                 {Param::int4(lane.sink_id), Param::boolean(hold), Param::int4(lane.lanes), Param::int4(lane.lane)});
    Cell c[2];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, c);
        gate.block(c[0].bytes, c[1].bytes);
    }
}

bool anything_parked(const Lane &lane)
{
    return pg::run_once("SELECT 1 FROM outbox.parked_events WHERE sink_id = $1 AND reason <> 'dead' LIMIT 1", {Param::int4(lane.sink_id)}).size() > 0;
}

// Names of destinations have no comma (Kafka: a topic's).
static std::string joined(const Destinations &names)
{
    std::string all;
    for (const std::string &name : names)
        all.append(all.empty() ? "" : ",").append(name);
    return all;
}

Destinations destinations_with_piles(const Lane &lane)
{
    Destinations found;
    pg::Rows rows = pg::run_once("SELECT destination FROM outbox.parked_events WHERE sink_id = $1 AND reason <> 'dead' GROUP BY 1"
                                 " HAVING pg_catalog.count(*) > 1000 AND pg_catalog.bool_or(reason = 'retry' AND attempts > 0)",
                                 {Param::int4(lane.sink_id)});
    Cell c[1];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, c);
        found.emplace_back(c[0].bytes);
    }
    return found;
}

// The plans of these statements may have been made while the table was empty, so none of them may have a join that an old plan
// makes quadratic: by window functions, or led to the index.

void promote(const Lane &lane, bool hold, const Destinations &closed)
{
    static pg::Statement find(
        "SELECT w.id FROM (SELECT p.id, p.reason, p.destination, p.aggregate_id,"
        "     min(p.id) FILTER (WHERE p.reason <> 'behind' AND ($2 OR p.reason <> 'dead'))"
        "       OVER (PARTITION BY p.destination COLLATE \"C\", p.aggregate_id COLLATE \"C\") AS first_id"
        "   FROM outbox.parked_events p WHERE p.sink_id = $1 AND outbox.lane_of(p.aggregate_id, p.id, $4) = $5) w"
        // All that wait behind a key's released event at once: one by one a busy key would never catch up.
        " WHERE w.reason = 'behind' AND (w.aggregate_id IS NULL OR w.first_id IS NULL OR w.first_id > w.id)"
        "   AND w.destination <> ALL (pg_catalog.string_to_array($3, ','))");
    static pg::Statement update(
        "UPDATE outbox.parked_events SET reason = 'retry', next_attempt_at = pg_catalog.now()"
        " WHERE sink_id = $1 AND id IN (SELECT p.id FROM outbox.parked_events p"
        "   WHERE p.sink_id = $1 AND p.id = ANY ($2) AND p.reason = 'behind' FOR UPDATE SKIP LOCKED)");
    std::string names = joined(closed);
    Ids ids;
    pg::Rows rows = find.run({Param::int4(lane.sink_id), Param::boolean(hold), Param::text(names), Param::int4(lane.lanes), Param::int4(lane.lane)});
    ids.reserve(rows.size());
    rows.each([&](const Cell *c) { ids.push_back(c[0].number); });
    if (!ids.empty())
        update.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size())});
}

#define EVENT_COLUMNS \
    "id, '0'::pg_catalog.xid8, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers::text, topic, created_at"

// By the index on the key's hash. $1 is the sink, by which the primary key is not to be tempted.
#define SAME_KEY(a, b)                                                                                                 \
    "pg_catalog.hashtextextended(" a ".aggregate_id, 0) = pg_catalog.hashtextextended(" b ".aggregate_id, 0)"           \
    " AND " a ".aggregate_id = " b ".aggregate_id AND " a ".destination = " b ".destination AND " a ".sink_id + 0 = $1"

std::vector<core::Event> take_due(const Lane &lane, bool hold, std::int64_t limit, const Destinations &closed, const Destinations &to_test)
{
    static pg::Statement due(
        "SELECT " EVENT_COLUMNS " FROM outbox.parked_events p"
        " WHERE sink_id = $1 AND reason = 'retry' AND next_attempt_at <= pg_catalog.now()"
        "   AND outbox.lane_of(aggregate_id, id, $2) = $3 AND destination <> ALL (pg_catalog.string_to_array($5, ','))"
        " ORDER BY next_attempt_at, id LIMIT $4 FOR UPDATE SKIP LOCKED");
    // The first of some keys, those that were tried least: one key or one partition does not speak for the whole destination.
    static pg::Statement tests(
        "SELECT t.* FROM pg_catalog.unnest(pg_catalog.string_to_array($4, ',')) d, LATERAL ("
        "   SELECT " EVENT_COLUMNS " FROM outbox.parked_events p JOIN ("
        "     SELECT min(f.id) AS first_id FROM outbox.parked_events f"
        "     WHERE f.sink_id = $1 AND f.destination = d AND ($5 OR f.reason <> 'dead') AND outbox.lane_of(f.aggregate_id, f.id, $2) = $3"
        "     GROUP BY f.aggregate_id) h ON h.first_id = p.id"
        "   WHERE p.sink_id = $1 AND p.reason <> 'dead' ORDER BY p.attempts, p.id LIMIT 8 FOR UPDATE OF p SKIP LOCKED) t");
    std::vector<core::Event> events;
    std::size_t bytes = 0;
    auto add = [&](const Cell *c) {
        events.push_back(event_of(c));
        bytes += events.back().payload.size();
        return bytes < core::kMaxBatchBytes;  // the rest another time
    };
    std::string closed_names = joined(closed), test_names = joined(to_test);
    if (!to_test.empty()) {
        pg::Rows rows = tests.run({Param::int4(lane.sink_id), Param::int4(lane.lanes), Param::int4(lane.lane), Param::text(test_names), Param::boolean(hold)});
        events.reserve(rows.size());
        rows.each([&](const Cell *c) { return add(c); });
    }
    if (bytes < core::kMaxBatchBytes) {
        pg::Rows rows = due.run({Param::int4(lane.sink_id), Param::int4(lane.lanes), Param::int4(lane.lane), Param::int8(limit), Param::text(closed_names)});
        events.reserve(events.size() + rows.size());
        rows.each([&](const Cell *c) { return add(c); });
    }
    if (events.empty())
        return events;
    std::sort(events.begin(), events.end(), [](const core::Event &a, const core::Event &b) { return a.id < b.id; });
    Ids ids;
    ids.reserve(events.size());
    for (const core::Event &e : events)
        ids.push_back(e.id);

    // A row that somebody holds locked was skipped; what comes after it in its key must not go first. All rows of these keys, in
    // order, with a number for the key.
    static pg::Statement of_their_keys(
        "SELECT f.id, k.number FROM ("
        "   SELECT destination, aggregate_id, max(id) AS last_id, pg_catalog.row_number() OVER () AS number FROM outbox.parked_events"
        "   WHERE sink_id = $1 AND id = ANY ($2) AND aggregate_id IS NOT NULL GROUP BY 1, 2) k"
        " JOIN outbox.parked_events f ON " SAME_KEY("f", "k") " AND f.id <= k.last_id WHERE ($3 OR f.reason <> 'dead') ORDER BY f.id");
    pg::Rows rows = of_their_keys.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size()), Param::boolean(hold)});
    Ids leave;
    leave.reserve(ids.size());
    std::vector<char> held_back(ids.size() + 1);  // by the key's number
    rows.each([&](const Cell *c) {
        if (!std::binary_search(ids.begin(), ids.end(), c[0].number))
            held_back[static_cast<std::size_t>(c[1].number)] = 1;
        else if (held_back[static_cast<std::size_t>(c[1].number)] != 0)
            leave.push_back(c[0].number);
    });
    // They wait as what they are, and all that is due behind them too, or a key with many of them would take each turn of the others.
    static pg::Statement wait(
        "UPDATE outbox.parked_events SET reason = 'behind', next_attempt_at = NULL WHERE sink_id = $1 AND id = ANY (ARRAY("
        "   SELECT f.id FROM (SELECT destination, aggregate_id, min(id) AS first_id FROM outbox.parked_events"
        "     WHERE sink_id = $1 AND id = ANY ($2) GROUP BY 1, 2) k"
        "   JOIN outbox.parked_events f ON " SAME_KEY("f", "k") " AND f.id >= k.first_id"
        "   WHERE f.reason = 'retry' AND f.next_attempt_at <= pg_catalog.now() FOR UPDATE OF f SKIP LOCKED))");
    if (!leave.empty())
        wait.run({Param::int4(lane.sink_id), Param::int8s(leave.data(), leave.size())});
    std::erase_if(events, [&](const core::Event &e) { return std::binary_search(leave.begin(), leave.end(), e.id); });
    return events;
}

std::vector<Key> unpark(const Lane &lane, bool hold, const Ids &ids)
{
    // All of these keys up to their last one was among them when they were taken (see take_due), so what counts is the first one behind it. Only
    // what a session has redriven meanwhile can come before it, where dead ones hold nobody back: then the key is not free.
    static pg::Statement follow(
        "WITH next AS MATERIALIZED (SELECT k.*, n.id, n.reason FROM ("
        "     SELECT destination, aggregate_id, max(id) AS last_id FROM outbox.parked_events"
        "     WHERE sink_id = $1 AND id = ANY ($2) AND aggregate_id IS NOT NULL GROUP BY 1, 2) k"
        "   LEFT JOIN LATERAL (SELECT f.id, f.reason FROM outbox.parked_events f"
        "     WHERE " SAME_KEY("f", "k") " AND f.id > k.last_id AND ($3 OR f.reason <> 'dead') ORDER BY f.id LIMIT 1) n ON true),"
        " run AS MATERIALIZED (SELECT next.*, coalesce((SELECT min(o.id) FROM outbox.parked_events o"
        "     WHERE " SAME_KEY("o", "next") " AND o.id > next.id AND o.reason <> 'behind' AND ($3 OR o.reason <> 'dead')),"
        "     9223372036854775807) AS end_id FROM next WHERE reason = 'behind'),"
        " due AS (UPDATE outbox.parked_events SET reason = 'retry', next_attempt_at = pg_catalog.now()"
        "   WHERE sink_id = $1 AND id = ANY (ARRAY(SELECT f.id FROM run JOIN outbox.parked_events f"
        "     ON " SAME_KEY("f", "run") " AND f.id >= run.id AND f.id < run.end_id WHERE f.reason = 'behind' FOR UPDATE OF f SKIP LOCKED)))"
        " SELECT destination, aggregate_id FROM next WHERE id IS NULL AND NOT EXISTS (SELECT FROM outbox.parked_events f"
        "   WHERE " SAME_KEY("f", "next") " AND f.id < next.last_id AND f.id <> ALL ($2) AND ($3 OR f.reason <> 'dead'))");
    static pg::Statement remove("DELETE FROM outbox.parked_events WHERE sink_id = $1 AND id = ANY ($2)");
    std::vector<Key> free;
    if (ids.empty())
        return free;
    pg::Rows rows = follow.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size()), Param::boolean(hold)});
    Cell c[2];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, c);
        free.push_back({std::string(c[0].bytes), std::string(c[1].bytes)});
    }
    remove.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size())});
    return free;
}

void put_back(const Lane &lane, const Ids &ids, ParkReason reason, std::string_view error)
{
    // 2, 4, 8 ... seconds, five minutes at most, with jitter.
    static pg::Statement update(
        "UPDATE outbox.parked_events SET reason = $3, attempts = attempts + CASE WHEN $3 = 'behind' THEN 0 ELSE 1 END,"
        " last_error = coalesce(nullif($4, ''), last_error),"
        " next_attempt_at = CASE WHEN $3 = 'retry' THEN pg_catalog.clock_timestamp()"
        "   + least(pg_catalog.power(2, least(attempts, 10)), 300) * (0.75 + pg_catalog.random() / 2) * interval '1 second' END"
        " WHERE sink_id = $1 AND id = ANY ($2)");
    update.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size()), Param::text(name(reason)), Param::text(error)});
}

Ids put_back_refused(const Lane &lane, const Ids &ids, std::string_view error, const Schedule &schedule)
{
    static pg::Statement update(
        "UPDATE outbox.parked_events SET attempts = attempts + 1, last_error = $3,"
        " reason = CASE WHEN attempts + 1 < $4 THEN 'retry' ELSE 'dead' END,"
        " next_attempt_at = CASE WHEN attempts + 1 < $4 THEN pg_catalog.clock_timestamp()"
        "   + ($5::bigint[])[least(attempts + 1, pg_catalog.cardinality($5))] * (0.9 + pg_catalog.random() / 5) * interval '1 millisecond' END"
        " WHERE sink_id = $1 AND id = ANY ($2) RETURNING id, reason = 'dead'");
    pg::Rows rows = update.run({Param::int4(lane.sink_id), Param::int8s(ids.data(), ids.size()), Param::text(error), Param::int4(schedule.attempts),
                                Param::int8s(schedule.pauses_ms.data(), schedule.pauses_ms.size())});
    Ids dead;
    dead.reserve(rows.size());
    rows.each([&](const Cell *c) {
        if (c[1].number != 0)
            dead.push_back(c[0].number);
    });
    return dead;
}

}  // namespace outbox::store
