#include "store/lanes.hpp"

#include <stdexcept>
#include <utility>

#include "pg/session.hpp"
#include "pg/spi.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

static core::Snapshot snapshot_of(std::string_view text)
{
    core::Snapshot snapshot;
    if (!core::parse_snapshot(text, snapshot))
        throw std::runtime_error("not a snapshot: " + std::string(text.substr(0, 100)));
    return snapshot;
}

// A request's ids with a 0 behind them, and so on.
static std::vector<std::int64_t> flat(const std::vector<std::vector<std::int64_t>> &requests)
{
    std::vector<std::int64_t> all;
    for (const auto &ids : requests) {
        all.insert(all.end(), ids.begin(), ids.end());
        all.push_back(0);
    }
    return all;
}

static void load_requests(Progress &progress, const Lane &lane)
{
    pg::Rows rows = pg::run_once("SELECT pg_catalog.unnest(requests) FROM outbox.progress WHERE sink_id = $1 AND epoch = $2 AND lane = $3 AND batch = $4",
                                 {Param::int4(lane.sink_id), Param::int4(lane.epoch), Param::int4(lane.lane), Param::int8(progress.batch)});
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < rows.size(); i++) {
        if (std::int64_t id = rows.number(i, 0); id != 0)
            ids.push_back(id);
        else
            progress.requests.push_back(std::exchange(ids, {}));
    }
}

bool load_lane(Lane &lane, Progress &progress, std::optional<Cap> &cap)
{
    static pg::Statement newest(
        "SELECT l.epoch, l.lanes, p.batch, p.\"position\", p.seen::text, p.next_xid, p.late_position, p.late_seen::text, p.published,"
        "       c.lanes, c.\"position\", c.seen::text, c.next_xid, p.requests IS NOT NULL"
        " FROM outbox.lanes l CROSS JOIN LATERAL (SELECT * FROM outbox.progress p WHERE p.sink_id = l.sink_id AND p.epoch = l.epoch"
        "   AND p.lane = l.lane ORDER BY p.batch DESC LIMIT 1) p"
        " LEFT JOIN outbox.lane_changes c ON c.sink_id = l.sink_id WHERE l.sink_id = $1 AND l.lane = $2");
    pg::Rows rows = newest.read({Param::int4(lane.sink_id), Param::int4(lane.lane)});
    if (rows.size() == 0)
        return false;
    Cell c[14];
    rows.get(0, c);
    lane.epoch = static_cast<std::int32_t>(c[0].number);
    lane.lanes = static_cast<std::int32_t>(c[1].number);
    progress.batch = c[2].number;
    progress.position = c[3].number;
    progress.seen = snapshot_of(c[4].bytes);
    progress.next_xid = static_cast<std::uint64_t>(c[5].number);
    progress.late_position = c[6].number;
    progress.late_seen.reset();
    if (!c[7].null)
        progress.late_seen = snapshot_of(c[7].bytes);
    progress.published = c[8].number;
    progress.requests.clear();
    if (c[13].number != 0)
        load_requests(progress, lane);
    cap.reset();
    if (!c[9].null)
        cap = Cap{static_cast<std::int32_t>(c[9].number), c[10].number, snapshot_of(c[11].bytes), static_cast<std::uint64_t>(c[12].number)};
    return true;
}

bool claim(const Lane &lane, const Progress &progress, bool capped)
{
    static pg::Statement lock("SELECT epoch FROM outbox.lanes WHERE sink_id = $1 AND lane = $2 FOR UPDATE SKIP LOCKED");
    pg::Rows locked = lock.run({Param::int4(lane.sink_id), Param::int4(lane.lane)});
    if (locked.size() == 0 || locked.number() != lane.epoch)
        return false;
    static pg::Statement newest(
        "SELECT (SELECT p.batch FROM outbox.progress p WHERE p.sink_id = $1 AND p.epoch = $2 AND p.lane = $3 ORDER BY p.batch DESC LIMIT 1),"
        " EXISTS (SELECT FROM outbox.lane_changes c WHERE c.sink_id = $1)");
    pg::Rows rows = newest.run({Param::int4(lane.sink_id), Param::int4(lane.epoch), Param::int4(lane.lane)});
    return rows.number(0, 0) == progress.batch && (rows.number(0, 1) != 0) == capped;
}

void lock_records()
{
    static pg::Statement lock("LOCK TABLE outbox.progress, outbox.parked_events IN ROW EXCLUSIVE MODE");
    lock.run({});
}

void record(const Lane &lane, const Progress &p, std::int32_t events)
{
    static pg::Statement insert(
        "INSERT INTO outbox.progress (sink_id, epoch, lane, batch, \"position\", seen, next_xid, late_position, late_seen, events, published, requests)"
        " VALUES ($1, $2, $3, $4, $5, $6::pg_catalog.pg_snapshot, $7, $8, $9::pg_catalog.pg_snapshot, $10, $11, $12)");
    std::string seen = p.seen.text(), late = p.late_seen ? p.late_seen->text() : std::string();
    std::vector<std::int64_t> requests = flat(p.requests);
    insert.run({Param::int4(lane.sink_id), Param::int4(lane.epoch), Param::int4(lane.lane), Param::int8(p.batch), Param::int8(p.position),
                Param::text(seen), Param::xid8(p.next_xid),
                p.late_seen ? Param::int8(p.late_position) : Param::none(Param::Type::int8),
                p.late_seen ? Param::text(late) : Param::none(Param::Type::text), Param::int4(events), Param::int8(p.published),
                requests.empty() ? Param::none(Param::Type::int8_array) : Param::int8s(requests.data(), requests.size())});
}

void Thinning::step(const Lane &lane, std::int64_t newest)
{
    if (lane.epoch != epoch_)
        *this = Thinning(lane.epoch);
    // A row stays if it is the last of its minute; every row of the last two minutes stays until a later time.
    pg::run_once("DELETE FROM outbox.progress d WHERE d.sink_id = $1 AND d.epoch = $2 AND d.lane = $3 AND d.batch > $4"
                 " AND d.recorded_at < pg_catalog.now() - interval '2 minutes'"
                 " AND EXISTS (SELECT FROM outbox.progress n WHERE n.sink_id = d.sink_id AND n.epoch = d.epoch AND n.lane = d.lane"
                 "             AND n.batch = d.batch + 1"
                 "             AND pg_catalog.date_trunc('minute', n.recorded_at) = pg_catalog.date_trunc('minute', d.recorded_at))",
                 {Param::int4(lane.sink_id), Param::int4(lane.epoch), Param::int4(lane.lane), Param::int8(decided_)});
    if (auto now = std::chrono::steady_clock::now(); now - marked_at_ > std::chrono::minutes(3)) {
        decided_ = std::exchange(mark_, newest);
        marked_at_ = now;
    }
}

// ---- changing the number of lanes -----------------------------------------------------------------------------------------

static std::size_t lock_all_lanes(std::int32_t sink_id)
{
    // Waits for the batches under way, in lane order; relays hold one lane each and wait for nothing meanwhile.
    return pg::run_once("SELECT lane FROM outbox.lanes WHERE sink_id = $1 ORDER BY lane FOR UPDATE", {Param::int4(sink_id)}).size();
}

static void set_cap(const Lane &lane, std::int32_t wanted)
{
    // All lanes are locked: none can read under a newer snapshot than this one without seeing the cap.
    pg::Rows now = pg::run_once("SELECT pg_catalog.pg_current_snapshot()::text,"
                                " greatest((SELECT max(id) FROM outbox.events), (SELECT max(\"position\") FROM outbox.lane_progress WHERE sink_id = $1), 0)",
                                {Param::int4(lane.sink_id)});
    Cell c[2];
    now.get(0, c);
    pg::run_once("INSERT INTO outbox.lane_changes (sink_id, lanes, \"position\", seen, next_xid) VALUES ($1, $2, $3, $4::pg_catalog.pg_snapshot, $5)",
                 {Param::int4(lane.sink_id), Param::int4(wanted), Param::int8(c[1].number), Param::text(c[0].bytes), Param::xid8(pg::next_xid())});
}

static void put_new_lanes(const Lane &lane)
{
    const std::initializer_list<Param> sink = {Param::int4(lane.sink_id)};
    pg::run_once("UPDATE outbox.sinks s SET epoch = s.epoch + 1, lanes = c.lanes FROM outbox.lane_changes c"
                 " WHERE c.sink_id = s.sink_id AND s.sink_id = $1", sink);
    // Progress of the new set begins at 0; what the old one published stays counted.
    pg::run_once("UPDATE outbox.counters c SET published = c.published + p.published FROM outbox.lane_progress p"
                 " WHERE p.sink_id = $1 AND c.sink_id = p.sink_id AND c.lane = p.lane", sink);
    pg::run_once("DELETE FROM outbox.lanes WHERE sink_id = $1", sink);
    pg::run_once("INSERT INTO outbox.lanes (sink_id, lane, epoch, lanes) SELECT s.sink_id, g, s.epoch, s.lanes"
                 " FROM outbox.sinks s, pg_catalog.generate_series(0, s.lanes - 1) g WHERE s.sink_id = $1", sink);
    pg::run_once("INSERT INTO outbox.counters (sink_id, lane) SELECT sink_id, lane FROM outbox.lanes WHERE sink_id = $1 ON CONFLICT DO NOTHING", sink);
    pg::run_once("INSERT INTO outbox.progress (sink_id, epoch, lane, batch, \"position\", seen, next_xid, events, published)"
                 " SELECT s.sink_id, s.epoch, g, 0, c.\"position\", c.seen, c.next_xid, 0, 0"
                 " FROM outbox.sinks s, outbox.lane_changes c, pg_catalog.generate_series(0, s.lanes - 1) g"
                 " WHERE s.sink_id = $1 AND c.sink_id = $1", sink);
    pg::run_once("DELETE FROM outbox.lane_changes WHERE sink_id = $1", sink);
}

LaneChange change_lanes(const Lane &lane, std::int32_t wanted)
{
    const std::initializer_list<Param> sink = {Param::int4(lane.sink_id)};
    pg::Rows change = pg::run_once("SELECT 1 FROM outbox.lane_changes WHERE sink_id = $1", sink);
    if (change.size() == 0) {
        if (wanted == lane.lanes)
            return LaneChange::none;
        lock_all_lanes(lane.sink_id);
        set_cap(lane, wanted);
        return LaneChange::waiting;
    }
    const char *apart = "SELECT 1 FROM outbox.lane_progress p, outbox.lane_changes c WHERE p.sink_id = $1 AND c.sink_id = $1"
                        " AND (p.\"position\" <> c.\"position\" OR p.seen::text <> c.seen::text OR p.late_seen IS NOT NULL)";
    if (pg::run_once(apart, sink).size() > 0)
        return LaneChange::waiting;
    lock_all_lanes(lane.sink_id);
    if (pg::run_once(apart, sink).size() > 0)
        return LaneChange::waiting;
    put_new_lanes(lane);
    return LaneChange::done;
}

}  // namespace outbox::store
