#include "store/log.hpp"

#include <algorithm>
#include <utility>

#include "core/keyhash.hpp"
#include "pg/session.hpp"
#include "state/faults.hpp"
#include "store/rows.hpp"
#include "store/segments.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

// PostgreSQL counts from 2000, events from 1970.
static constexpr std::int64_t kEpochShift = 946'684'800'000'000;

void Batch::clear()
{
    events.clear();
    bytes.clear();
    late = skipped = 0;
    late_complete = true;
    more = moved = false;
}

void Batch::keep(const core::Event &event)
{
    core::Event &e = events.emplace_back(event);
    for (core::Bytes *part : {&e.aggregate_type, &e.aggregate_id, &e.event_type, &e.payload, &e.headers, &e.topic})
        *part = bytes.keep(*part);
}

void Batch::follow(const Progress &recorded)
{
    // It could not know how many would be parked, nor which requests would be fixed.
    before.batch = recorded.batch;
    after.batch = recorded.batch + 1;
    before.published = recorded.published;
    after.published = recorded.published + static_cast<std::int64_t>(events.size());
    before.requests = after.requests = recorded.requests;
}

Progress Batch::after_first(std::size_t n) const
{
    if (n == events.size())
        return after;
    Progress p = before;
    p.batch = after.batch;
    p.published = before.published + static_cast<std::int64_t>(n);
    p.next_xid = std::max(before.next_xid, after.next_xid);
    if (n < late || !late_complete) {
        if (n > 0) {
            p.late_position = events[n - 1].id;
            p.late_seen = snapshot;
        }
        return p;
    }
    p.seen = snapshot;
    p.late_seen.reset();
    p.late_position = 0;
    if (n > late)
        p.position = events[n - 1].id;
    return p;
}

std::vector<std::uint64_t> Batch::xids(std::int64_t floor) const
{
    std::vector<std::uint64_t> xids;
    for (const core::Event &e : events)
        if (e.xid >= before.seen.xmin && e.id > floor && (xids.empty() || xids.back() != e.xid))
            xids.push_back(e.xid);
    return xids;
}

// What one read() works with.
struct Log::Reading {
    Batch &batch;
    const Progress &progress;
    const std::optional<Cap> &cap;
    Limits limits;
    const std::unordered_set<std::int64_t> &skip;
    std::size_t bytes = 0;     // of our events
    std::size_t looked_at = 0, looked_at_bytes = 0;  // rows, ours or not: a transaction must not walk through a whole backlog
    std::int64_t last_id = 0;  // of the rows looked at
    bool older = false;        // they are read under a newer snapshot than the batch's
    bool beyond_cap = false;

    bool full() const { return batch.events.size() >= limits.events || bytes >= limits.bytes || looked_at_bytes >= 2 * limits.bytes; }
    std::size_t room() const { return limits.events - std::min(limits.events, batch.events.size()); }
    // As many rows as the bytes left allow, by what rows weighed so far.
    std::size_t next_chunk() const
    {
        std::size_t average = looked_at == 0 ? 256 : looked_at_bytes / looked_at + 1;
        std::size_t left = limits.bytes - std::min(limits.bytes, std::max(bytes, looked_at_bytes / 2));
        return std::clamp<std::size_t>(left / average + 1, 1, 500);
    }
};

void Log::configure(const Lane &lane, const core::EventFilter &filter, std::int64_t floor)
{
    lane_ = lane;
    filter_ = filter;
    floor_ = floor;
}

void Log::restart()
{
    turns_known_ = false;
    full_look_ = true;
    begun_after_.reset();
}

void Log::load_turns(std::int64_t current)
{
    if (turns_known_ && !turns_.empty() && turns_.back().turn == current) {
        bool unfenced = false;
        for (std::size_t i = 0; i + 1 < turns_.size(); i++)
            unfenced = unfenced || turns_[i].fence == 0;
        if (!unfenced)
            return;
    }
    std::int64_t oldest = turns_known_ && !turns_.empty() ? turns_.front().turn : current - kSegments + 1;
    static pg::Statement select("SELECT turn, segment, coalesce(fence, '0'::pg_catalog.xid8) FROM outbox.segments"
                                " WHERE turn >= $1 AND truncated_at IS NULL ORDER BY turn");
    // Under the read's own snapshot a turn that just began may have no row yet, nor one that began while this process was
    // stopped for seconds between the snapshot and the turn: they are derived below.
    std::vector<Turn> turns;
    pg::Rows rows = select.read({Param::int8(oldest)});
    Cell c[3];
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows.get(i, c);
        if (c[0].number <= current)
            turns.push_back({c[0].number, static_cast<int>(c[1].number), static_cast<std::uint64_t>(c[2].number)});
    }
    for (std::int64_t turn = turns.empty() ? current : turns.back().turn + 1; turn <= current; turn++)
        turns.push_back({turn, segment_of(turn), 0});
    for (const Turn &turn : turns)
        newest_fence_ = std::max(newest_fence_, turn.fence);
    turns_ = std::move(turns);
    turns_known_ = true;
    prepare_statements();
}

// A turn is finished when nothing in it is new and nothing can be late: all its writers ended before `seen`.
void Log::drop_finished_turns(const Progress &progress)
{
    bool dropped = false;
    while (turns_.size() > 1 && turns_.front().closed_for(progress.seen) && !progress.late_seen) {
        std::string sql = "SELECT 1 FROM outbox.events_" + std::to_string(turns_.front().segment) + " WHERE id > $1 LIMIT 1";
        if (pg::read_once(sql.c_str(), {Param::int8(progress.position)}).size() > 0)
            break;
        turns_.erase(turns_.begin());
        dropped = true;
    }
    if (dropped)
        prepare_statements();
}

static const char *const kColumns =
    "id, xid, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers::text, topic, created_at";

// The ids that transactions $1 wrote up to $2 and after $3, the first $4 of them. A range of the index on (xid, id) for each transaction, in
// its order: what is read does not depend on how much of a large transaction is done or still to come, and no statistics can make
// the planner walk the primary key instead, which has another order.
static std::string ids_of(const std::vector<std::string> &tables)
{
    std::string each;
    for (const std::string &table : tables)
        each += (each.empty() ? "" : " UNION ALL ") + ("(SELECT id FROM " + table + " WHERE (xid, id) > (writer.xid, $3) AND (xid, id) <= (writer.xid, $2)"
                                                       " ORDER BY xid, id LIMIT $4)");
    return "SELECT late.id FROM pg_catalog.unnest($1) writer (xid) CROSS JOIN LATERAL (" + each + ") late ORDER BY late.id LIMIT $4";
}

void Log::prepare_statements()
{
    new_sql_.clear();
    by_id_sql_.clear();
    std::vector<std::string> tables;
    for (const Turn &turn : turns_) {
        const std::string &table = tables.emplace_back("outbox.events_" + std::to_string(turn.segment));
        const char *and_then = new_sql_.empty() ? "" : " UNION ALL ";
        new_sql_ += and_then + ("(SELECT " + std::string(kColumns) + " FROM " + table + " WHERE id > $1 ORDER BY id LIMIT $2)");
        by_id_sql_ += and_then + ("SELECT " + std::string(kColumns) + " FROM " + table + " WHERE id = ANY ($1)");
    }
    if (turns_.size() > 1)
        new_sql_ += " ORDER BY id LIMIT $2";
    late_sql_ = ids_of(tables);
    new_.reset(new_sql_.c_str());
    late_.reset(late_sql_.c_str());
    by_id_.reset(by_id_sql_.c_str());
}

// ---- rows to events -------------------------------------------------------------------------------------------------------

core::Event event_of(const Cell *c)
{
    core::Event e;
    e.id = c[0].number;
    e.xid = static_cast<std::uint64_t>(c[1].number);
    std::copy_n(c[2].bytes.data(), e.event_id.size(), reinterpret_cast<char *>(e.event_id.data()));
    e.aggregate_type = c[3].bytes;
    e.aggregate_id = c[4].bytes;
    e.event_type = c[5].bytes;
    e.payload_is_json = !c[6].null || c[7].null;
    e.payload = c[6].null ? c[7].bytes : c[6].bytes;
    e.headers = c[8].bytes;
    e.topic = c[9].bytes;
    e.created_at = c[10].number + kEpochShift;
    return e;
}

// A row that was read.
void Log::take(Reading &r, const Cell *cells)
{
    core::Event e = event_of(cells);
    if (r.cap && e.id > r.cap->position) {
        r.beyond_cap = true;
        return;
    }
    std::size_t size = e.payload.size() + e.aggregate_id.size() + e.headers.size() + e.event_type.size() + 64;
    r.last_id = e.id;
    r.looked_at++;
    r.looked_at_bytes += size + 200;
    // Rows of an older snapshot than the one that reads (a late range under way, a cap) are chosen here. Up to the floor they
    // carry another cluster's transaction ids, and everybody sees them.
    bool visible = !r.older || e.id <= floor_ || r.batch.snapshot.visible(e.xid);
    if (visible && core::lane_of(e.aggregate_id, e.id, lane_.lanes) == lane_.lane && filter_.matches(e)) {
        if (!r.skip.empty() && r.skip.count(e.id) > 0) {
            r.batch.skipped++;
        } else {
            r.bytes += size;
            r.batch.keep(e);
        }
    }
}

// ---- late events ----------------------------------------------------------------------------------------------------------

// The transactions that ended after `seen`: of those that it lists as running, and of those between its xmax and the next xid. In full (once
// in a while): of all from its xmax on that wrote at or below the position.
std::vector<std::uint64_t> Log::ended(const Reading &r)
{
    const Progress &p = r.progress;
    std::vector<std::uint64_t> xids = p.seen.xip;
    if (full_look_) {
        const std::vector<std::uint64_t> &writers = begun_after(r);
        xids.insert(xids.end(), writers.begin(), writers.end());
    } else {
        for (std::uint64_t xid = p.seen.xmax; xid < p.next_xid; xid++)
            xids.push_back(xid);
    }
    std::erase_if(xids, [&](std::uint64_t xid) { return !r.batch.snapshot.visible(xid); });
    return xids;
}

// It may pass by much that is new, and so is done once for the batches of a range of late events.
const std::vector<std::uint64_t> &Log::begun_after(const Reading &r)
{
    const Progress &p = r.progress;
    if (begun_after_ && p.late_seen && begun_after_->late_seen == *p.late_seen && begun_after_->seen == p.seen && begun_after_->position == p.position)
        return begun_after_->xids;
    pg::Rows rows = pg::read_once("SELECT DISTINCT xid FROM outbox.events WHERE xid >= $1 AND id + 0 <= $2 AND id + 0 > $3",
                                  {Param::xid8(p.seen.xmax), Param::int8(p.position), Param::int8(floor_)});
    std::vector<std::uint64_t> xids;
    xids.reserve(rows.size());
    rows.each([&](const Cell *c) { xids.push_back(static_cast<std::uint64_t>(c[0].number)); });
    begun_after_ = BegunAfter{p.seen, r.batch.snapshot, p.position, std::move(xids)};
    return begun_after_->xids;
}

// Ids of events at or below the position whose transactions ended after `seen`.
std::vector<std::int64_t> Log::late_ids(Reading &r)
{
    const Progress &p = r.progress;
    std::vector<std::uint64_t> xids = ended(r);
    if (xids.empty())
        return {};
    std::initializer_list<Param> params = {Param::xid8s(xids.data(), xids.size()), Param::int8(p.position),
                                           Param::int8(std::max(p.late_seen ? p.late_position : 0, floor_)),
                                           Param::int8(static_cast<std::int64_t>(r.limits.events) + 1)};
    pg::Rows rows = full_look_ ? pg::read_once(ids_of({"outbox.events"}).c_str(), params) : late_.read(params);
    std::vector<std::int64_t> ids;
    ids.reserve(rows.size());
    rows.each([&](const Cell *c) { ids.push_back(c[0].number); });
    return ids;
}

void Log::read_late(Reading &r)
{
    std::vector<std::int64_t> ids = late_ids(r);
    std::size_t done = 0, chunk = 10;
    while (done < ids.size() && !r.full()) {
        std::size_t n = std::min({chunk, ids.size() - done, r.room()});
        auto first = static_cast<std::ptrdiff_t>(r.batch.events.size());
        std::initializer_list<Param> some = {Param::int8s(ids.data() + done, n)};
        auto row = [&](const Cell *cells) {
            take(r, cells);
            return true;
        };
        if (full_look_)
            pg::Statement::each_once(("SELECT " + std::string(kColumns) + " FROM outbox.events WHERE id = ANY ($1)").c_str(), some, row);
        else
            by_id_.each(some, row);
        std::sort(r.batch.events.begin() + first, r.batch.events.end(),
                  [](const core::Event &a, const core::Event &b) { return a.id < b.id; });
        done += n;
        chunk = r.next_chunk();
    }
    r.batch.late = r.batch.events.size();
    r.batch.late_complete = done == ids.size() && ids.size() <= r.limits.events;
    if (!r.batch.late_complete)
        r.last_id = ids[done - 1];
}

// ---- new events -----------------------------------------------------------------------------------------------------------

void Log::read_new(Reading &r)
{
    r.last_id = r.progress.position;
    while (!r.full() && !r.beyond_cap) {
        // Several partitions are sorted: each then reads as many rows.
        std::size_t n = turns_.size() > 1 ? std::min(r.room(), r.next_chunk()) : r.room();
        std::size_t shown = new_.each({Param::int8(r.last_id), Param::int8(static_cast<std::int64_t>(n))}, [&](const Cell *cells) {
            take(r, cells);
            return !r.full() && !r.beyond_cap;
        });
        if (shown < n)
            break;  // the end, unless it stopped
    }
    r.batch.after.position = std::max(r.progress.position, r.last_id);
}

void Log::read(Batch &batch, const Progress &progress, const std::optional<Cap> &cap, Limits limits, const std::unordered_set<std::int64_t> &skip)
{
    batch.clear();
    batch.before = progress;
    batch.after = progress;
    batch.after.batch = progress.batch + 1;
    Reading r{batch, progress, cap, limits, skip};
    r.older = cap.has_value() || progress.late_seen.has_value();

    pg::ReadView view;
    // The turn is read after the snapshot: what the snapshot sees was written to this turn or an earlier one.
    // Both without a query: an idle lane asks one per interval, the one for new events.
    core::Snapshot now;
    core::parse_snapshot(pg::snapshot_text(), now);
    load_turns(pg::log_turn());
    drop_finished_turns(progress);
    if (progress.late_seen)
        batch.snapshot = *progress.late_seen;
    else if (cap)
        batch.snapshot = cap->seen;
    else
        batch.snapshot = std::move(now);

    if (!fault("follow_id_alone"))
        read_late(r);
    if (!batch.late_complete) {
        batch.after.late_position = r.last_id;
        batch.after.late_seen = batch.snapshot;
        batch.more = true;
    } else if (progress.late_seen) {
        batch.after.seen = batch.snapshot;
        batch.after.late_seen.reset();
        batch.after.late_position = 0;
        batch.more = true;
    } else {
        read_new(r);
        batch.more = r.full();
        batch.after.seen = batch.snapshot;
        if (cap && !batch.more)
            batch.after.position = std::max(batch.after.position, cap->position);
        // Read after the rows: a transaction that begins later draws ids above all that was read.
        batch.after.next_xid = std::max(progress.next_xid, cap ? cap->next_xid : pg::next_xid());
        full_look_ = false;
    }
    batch.after.published = progress.published + static_cast<std::int64_t>(batch.events.size());
    batch.moved = batch.after.position != progress.position || batch.after.late_seen.has_value() || progress.late_seen.has_value();
}

}  // namespace outbox::store
