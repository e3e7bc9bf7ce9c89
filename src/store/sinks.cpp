#include "store/sinks.hpp"

#include <array>

#include "core/identity.hpp"
#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/spi.hpp"
#include "store/parked.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

std::string home() { return pg::installation(); }

[[noreturn]] static void fail(const char *sqlstate, std::string message, std::string hint = {})
{
    pg::Error error;
    error.sqlstate = pg::sqlstate(sqlstate);
    error.message = std::move(message);
    error.hint = std::move(hint);
    throw error;
}

// Runs a query and keeps its rows as strings: DDL is not the hot path.
template <int columns>
static std::vector<std::array<std::string, columns>> texts(const pg::Rows &rows)
{
    std::vector<std::array<std::string, columns>> result;
    Cell cells[columns];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, cells);
        std::array<std::string, columns> row;
        for (int c = 0; c < columns; c++)
            row[c] = std::string(cells[c].bytes);
        result.push_back(std::move(row));
    }
    return result;
}

// ---- DDL ----------------------------------------------------------------------------------------------------------------

static void set_home(const std::string &server, bool had_one)
{
    pg::set_server_option(server, had_one, "home", home());
}

static void remember_home()
{
    pg::run_once("INSERT INTO outbox.homes SELECT DISTINCT home FROM outbox.servers WHERE home = $1 ON CONFLICT DO NOTHING",
                 {Param::text(home())});
}

static void make_lanes(std::int32_t sink_id, std::int32_t epoch, std::int32_t lanes)
{
    pg::run_once("INSERT INTO outbox.lanes (sink_id, lane, epoch, lanes)"
                 " SELECT $1, g, $2, $3 FROM pg_catalog.generate_series(0, $3 - 1) g",
                 {Param::int4(sink_id), Param::int4(epoch), Param::int4(lanes)});
    pg::run_once("INSERT INTO outbox.counters (sink_id, lane) SELECT $1, g FROM pg_catalog.generate_series(0, $2 - 1) g",
                 {Param::int4(sink_id), Param::int4(lanes)});
}

// Where the lanes of a sink begin. `latest`: events up to the newest id drawn so far are behind us, unless their
// transaction is still open. The next xid is read last: transactions between the snapshot and it may be running, and
// have drawn ids already.
static void start_lanes(std::int32_t sink_id, std::int32_t epoch, std::int32_t lanes, bool latest)
{
    auto now = pg::run_once("SELECT pg_catalog.pg_current_snapshot()::text, last_value FROM outbox.events_id_seq");
    Cell c[2];
    now.get(0, c);
    pg::run_once("INSERT INTO outbox.progress (sink_id, epoch, lane, batch, \"position\", seen, next_xid, events, published)"
                 " SELECT $1, $2, g, 0, $4, $5::pg_catalog.pg_snapshot, $6, 0, 0 FROM pg_catalog.generate_series(0, $3 - 1) g",
                 {Param::int4(sink_id), Param::int4(epoch), Param::int4(lanes), Param::int8(latest ? c[1].number : 0),
                  Param::text(c[0].bytes), Param::xid8(pg::next_xid())});
}

static void make_sink(const std::string &name, std::int32_t lanes, bool latest)
{
    std::int32_t sink_id = static_cast<std::int32_t>(
        // Rows that a restore brought carry another cluster's transaction ids: never late here. Such a row can be seen although
        // no transaction of this cluster that could be seen has its id. The statement's own snapshot says so: what is read before
        // it is passed by writers that commit in between.
        pg::run_once("INSERT INTO outbox.sinks (name, lanes, floor) VALUES ($1, $2,"
                     " coalesce((SELECT max(id) FROM outbox.events WHERE xid <> pg_catalog.pg_current_xact_id()"
                     "           AND xid >= pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())), 0)) RETURNING sink_id",
                     {Param::text(name), Param::int4(lanes)})
            .number());
    make_lanes(sink_id, 1, lanes);
    start_lanes(sink_id, 1, lanes, latest);
}

static void settle_copy(std::int32_t sink_id);

void reconcile()
{
    // New servers get our identity before anything else: a dump carries it along.
    for (auto &row : texts<1>(pg::run_once("SELECT name FROM outbox.servers WHERE home IS NULL")))
        set_home(row[0], false);
    remember_home();

    std::string here = home();
    auto fresh = pg::run_once("SELECT v.name, v.lanes, v.start = 'latest', s.dropped_at IS NOT NULL FROM outbox.servers v"
                              " LEFT JOIN outbox.sinks s ON s.name = v.name"
                              " WHERE v.home = $1 AND (s.name IS NULL OR s.dropped_at IS NOT NULL)",
                              {Param::text(here)});
    Cell c[4];
    for (std::size_t i = 0; i < fresh.size(); i++) {
        fresh.get(i, c);
        std::string name(c[0].bytes);
        bool remembered = c[3].number != 0;
        // Somebody may just have forgotten it: then the row was waited for, and is gone.
        if (remembered && pg::run_once("UPDATE outbox.sinks SET dropped_at = NULL, paused = false, gone = NULL, gone_url = NULL WHERE name = $1 RETURNING 1", {Param::text(name)}).size() > 0) {
            // Of a restored copy it was another cluster's: its transactions are yet to come here. Its relay may still record, so what
            // it has recorded is read first.
            pg::Rows last = pg::run_once("SELECT next_xid FROM outbox.lane_progress WHERE sink = $1 ORDER BY 1 DESC LIMIT 1", {Param::text(name)});
            if (last.size() > 0 && static_cast<std::uint64_t>(last.number()) > pg::next_xid())
                settle_copy(sink_id_of(name));
            pg::notice("sink \"" + name + "\" goes on where it was when it was dropped",
                       "SELECT outbox.forget('" + name + "') before CREATE SERVER starts afresh.");
        } else {
            make_sink(name, static_cast<std::int32_t>(c[1].number), c[2].number != 0);
        }
    }
    pg::run_once("UPDATE outbox.sinks s SET dropped_at = pg_catalog.clock_timestamp()"
                 " WHERE dropped_at IS NULL AND NOT EXISTS (SELECT FROM outbox.servers v WHERE v.name = s.name)");
}

std::size_t adopt_after_upgrade()
{
    std::string here = home();
    std::size_t adopted = 0;
    for (auto &row : texts<2>(pg::run_once("SELECT v.name, v.home FROM outbox.servers v JOIN outbox.homes h USING (home) WHERE v.home <> $1",
                                           {Param::text(here)}))) {
        if (!core::another_cluster_only(row[1], here))
            continue;
        set_home(row[0], true);
        adopted++;
    }
    if (adopted > 0)
        remember_home();
    return adopted;
}

void forget_sink(std::int32_t sink_id)
{
    for (const char *sql : {"DELETE FROM outbox.progress WHERE sink_id = $1", "DELETE FROM outbox.counters WHERE sink_id = $1", "DELETE FROM outbox.lanes WHERE sink_id = $1",
                            "DELETE FROM outbox.lane_changes WHERE sink_id = $1", "DELETE FROM outbox.parked_events WHERE sink_id = $1",
                            "DELETE FROM outbox.replay_requests WHERE sink_id = $1",
                            "DELETE FROM outbox.sinks WHERE sink_id = $1"})
        pg::run_once(sql, {Param::int4(sink_id)});
}

void rename_sink(std::string_view from, std::string_view to)
{
    if (pg::run_once("SELECT 1 FROM outbox.servers WHERE name = $1", {Param::text(to)}).size() == 0)
        return;  // a server of somebody else's
    // What was remembered of the new name belonged to a sink that was dropped.
    auto old = pg::run_once("SELECT sink_id FROM outbox.sinks WHERE name = $1 AND dropped_at IS NOT NULL FOR UPDATE", {Param::text(to)});
    if (old.size() > 0)
        forget_sink(static_cast<std::int32_t>(old.number()));
    pg::run_once("UPDATE outbox.sinks SET name = $2 WHERE name = $1", {Param::text(from), Param::text(to)});
}

void check_droppable(std::string_view sink)
{
    bool pending = pg::run_once("SELECT 1 FROM outbox.pending WHERE sink = $1 LIMIT 1", {Param::text(sink)}).size() > 0;
    bool parked = pg::run_once("SELECT 1 FROM outbox.parked WHERE sink = $1 LIMIT 1", {Param::text(sink)}).size() > 0;
    if (pending || parked)
        fail("55006", "sink \"" + std::string(sink) + "\" has " + (pending ? "pending" : "parked") + " events",
             "Wait until outbox.lag shows none, or DROP SERVER ... CASCADE: a server created again under this name goes on "
             "where this one is.");
}

bool dropped_sinks_exist()
{
    return pg::run_once("SELECT 1 FROM outbox.sinks s WHERE dropped_at IS NULL"
                        " AND NOT EXISTS (SELECT FROM outbox.servers v WHERE v.name = s.name)").size() > 0;
}

std::int32_t sink_id_of(std::string_view name)
{
    auto rows = pg::run_once("SELECT s.sink_id FROM outbox.sinks s JOIN outbox.servers v ON v.name = s.name WHERE s.name = $1 AND dropped_at IS NULL", {Param::text(name)});
    if (rows.size() == 0)
        fail("42704", "there is no sink \"" + std::string(name) + "\"", "outbox.lag lists the sinks.");
    return static_cast<std::int32_t>(rows.number());
}

void pause(std::string_view sink)
{
    pg::run_once("UPDATE outbox.sinks SET paused = true WHERE sink_id = $1", {Param::int4(sink_id_of(sink))});
}

// A copy's rows carry transaction ids of another cluster. What was late there is found by the predicate once more, which
// compares those ids among themselves, and is parked; from then on nothing up to the last id is ever late here.
static void settle_copy(std::int32_t sink_id)
{
    // Waits for open writers and keeps new ones out for a moment: no event up to the floor is uncommitted then.
    pg::run_once("LOCK TABLE outbox.events IN SHARE MODE");
    pg::run_once("INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes,"
                 "        headers, topic, created_at, destination, reason, next_attempt_at, last_error)"
                 " SELECT $1, e.id, e.event_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.headers,"
                 "        e.topic, e.created_at, coalesce(e.topic, ''), 'retry', pg_catalog.clock_timestamp(), 'late when the copy was made'"
                 " FROM outbox.lane_progress p CROSS JOIN LATERAL ("
                 "   SELECT * FROM outbox.events l WHERE l.xid >= pg_catalog.pg_snapshot_xmin(p.seen) AND l.id <= p.\"position\" AND l.id > p.floor"
                 "     AND NOT pg_catalog.pg_visible_in_snapshot(l.xid, p.seen)"
                 "     AND NOT coalesce(l.id <= p.late_position AND pg_catalog.pg_visible_in_snapshot(l.xid, p.late_seen), false)) e"
                 " WHERE p.sink_id = $1 AND outbox.lane_of(e.aggregate_id, e.id, p.lanes) = p.lane ON CONFLICT DO NOTHING",
                 {Param::int4(sink_id)});
    pg::run_once("UPDATE outbox.sinks SET halted = NULL,"
                 " floor = greatest(floor, coalesce((SELECT max(id) FROM outbox.events), 0)) WHERE sink_id = $1", {Param::int4(sink_id)});
    pg::run_once("INSERT INTO outbox.progress (sink_id, epoch, lane, batch, \"position\", seen, next_xid, events, published)"
                 " SELECT sink_id, epoch, lane, batch + 1, \"position\", pg_catalog.pg_current_snapshot(), $2, 0, published"
                 " FROM outbox.lane_progress WHERE sink_id = $1",
                 {Param::int4(sink_id), Param::xid8(pg::next_xid())});
    readdress(Lane{sink_id, 0, 0, 1}, core::Route(load_sink(sink_id).options));
    // A change of lanes under way had a snapshot of the other cluster; it begins anew.
    pg::run_once("DELETE FROM outbox.lane_changes WHERE sink_id = $1", {Param::int4(sink_id)});
    // And a replay was asked for there, not here.
    pg::run_once("UPDATE outbox.replay_requests SET stopped = true, finished_at = pg_catalog.clock_timestamp(),"
                 " last_error = 'it was asked for before the sink was resumed in this installation' WHERE sink_id = $1 AND finished_at IS NULL", {Param::int4(sink_id)});
}

void resume(std::string_view sink)
{
    auto server = pg::run_once("SELECT home FROM outbox.servers WHERE name = $1", {Param::text(sink)});
    if (server.size() == 0)
        fail("42704", "there is no sink \"" + std::string(sink) + "\"", "outbox.lag lists the sinks.");
    Cell c[1];
    server.get(0, c);
    bool foreign = c[0].null || c[0].bytes != home();
    if (foreign)
        set_home(std::string(sink), !c[0].null);
    remember_home();
    if (pg::run_once("SELECT 1 FROM outbox.sinks WHERE name = $1 AND dropped_at IS NULL", {Param::text(sink)}).size() == 0)
        reconcile();
    else if (foreign)
        settle_copy(sink_id_of(sink));
    pg::run_once("UPDATE outbox.sinks SET paused = false, gone = NULL, gone_url = NULL WHERE name = $1", {Param::text(sink)});
}

void forget(std::string_view sink)
{
    // Locked first: who creates a server of that name meanwhile waits for us, or we for him.
    auto rows = pg::run_once("SELECT sink_id FROM outbox.sinks WHERE name = $1 FOR UPDATE", {Param::text(sink)});
    if (pg::run_once("SELECT 1 FROM outbox.servers WHERE name = $1", {Param::text(sink)}).size() > 0)
        fail("55006", "sink \"" + std::string(sink) + "\" is in use", "DROP SERVER first.");
    if (rows.size() == 0)
        fail("42704", "nothing is remembered of a sink \"" + std::string(sink) + "\"");
    forget_sink(static_cast<std::int32_t>(rows.number()));
}

// ---- relays and scouts ----------------------------------------------------------------------------------------------------

static void take_option(SinkConfig &config, const std::string &name, const std::string &value)
{
    if (!core::is_own_option(name, config.options.kind)) {
        config.options.properties.emplace_back(core::canonical_property(name), value);
        return;
    }
    core::OptionError problem = core::set_option(config.options, name, value);
    if (!problem.message.empty())
        config.error = problem.message;
}

void disable(std::int32_t sink_id, std::string_view url, std::string_view why)
{
    pg::run_once("UPDATE outbox.sinks SET gone = $3, gone_url = $2 WHERE sink_id = $1", {Param::int4(sink_id), Param::text(url), Param::text(why)});
}

SinkConfig load_sink(std::int32_t sink_id)
{
    SinkConfig config;
    auto rows = pg::run_once("SELECT s.name, v.wrapper, s.paused, s.lanes, s.floor, v.home, s.halted, s.gone, s.gone_url FROM outbox.sinks s"
                             " JOIN outbox.servers v ON v.name = s.name WHERE s.sink_id = $1 AND s.dropped_at IS NULL",
                             {Param::int4(sink_id)});
    if (rows.size() == 0)
        return config;
    Cell c[9];
    rows.get(0, c);
    config.exists = true;
    config.name = std::string(c[0].bytes);
    config.options = core::SinkOptions(c[1].bytes == "outbox_http" ? core::Kind::http : core::Kind::kafka);
    config.paused = c[2].number != 0;
    config.lanes = static_cast<std::int32_t>(c[3].number);
    config.floor = c[4].number;
    config.halted = c[5].null ? "it has no home" : core::foreign_home(c[5].bytes, home());
    if (config.halted.empty() && !c[6].null)
        config.halted = std::string(c[6].bytes);

    // The server's options first, then those of its owner's user mapping (or the one for PUBLIC).
    auto options = texts<2>(pg::run_once(
        "SELECT o.option_name, o.option_value FROM pg_catalog.pg_foreign_server s, pg_catalog.pg_options_to_table(s.srvoptions) o WHERE s.srvname = $1::text::name"
        " UNION ALL SELECT o.option_name, o.option_value FROM pg_catalog.pg_foreign_server s,"
        " LATERAL (SELECT m.umoptions FROM pg_catalog.pg_user_mapping m WHERE m.umserver = s.oid AND m.umuser IN (s.srvowner, 0)"
        "          ORDER BY m.umuser DESC LIMIT 1) m,"
        " pg_catalog.pg_options_to_table(m.umoptions) o WHERE s.srvname = $1::text::name",
        {Param::text(config.name)}));
    for (auto &option : options)
        take_option(config, option[0], option[1]);
    if (config.options.kind == core::Kind::http && config.error.empty()) {
        config.error = core::check_server(config.options).message;
        if (config.error.empty())
            config.error = core::check_http_mapping(config.options.http).message;
    }
    if (!c[7].null && c[8].bytes == config.options.http.url)
        config.gone = "until ALTER SERVER with another url, or outbox.resume, nothing more is sent: " + std::string(c[7].bytes);
    config.options.database = pg::my_database_name();
    config.options.sink = config.name;
    if (config.options.source.empty())
        config.options.source = "/outbox/" + config.options.database;
    return config;
}

std::vector<LaneId> wanted_lanes()
{
    std::vector<LaneId> lanes;
    // And who replays, in place of a lane (shared::kReplay): after the lanes, which get slots first.
    auto rows = pg::run_once("SELECT l.sink_id, l.lane FROM (SELECT sink_id, lane FROM outbox.lanes"
                             "   UNION SELECT sink_id, -1 FROM outbox.replay_requests WHERE finished_at IS NULL) l JOIN outbox.sinks s USING (sink_id)"
                             " JOIN outbox.servers v ON v.name = s.name WHERE s.dropped_at IS NULL AND v.home = $1 ORDER BY l.lane < 0, 1, 2",
                             {Param::text(home())});
    Cell c[2];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, c);
        lanes.push_back({static_cast<std::int32_t>(c[0].number), static_cast<std::int32_t>(c[1].number)});
    }
    return lanes;
}

}  // namespace outbox::store
