#include "store/scheduled.hpp"

#include <algorithm>
#include <chrono>

#include "pg/session.hpp"
#include "pg/spi.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

// So much is looked at again: it may have been committed meanwhile.
constexpr std::int64_t kCommitLate = 5'000'000;  // microseconds

// One process at a time moves them: two would interleave their ids.
static bool alone() { return pg::only_one(pg::Chore::scheduled); }

std::int64_t move_due(core::Front &front, std::int64_t limit, std::int64_t horizon_ms)
{
    pg::Transaction transaction;
    if (!pg::lock_extension().present)
        return -1;
    // now(): what clock_timestamp() says may change from row to row, so it is no bound for an index: every waiting row would be read.
    static pg::Statement next(
        "SELECT (SELECT greatest(0, pg_catalog.ceil(extract(epoch FROM s.deliver_at - pg_catalog.now()) * 1000))::bigint FROM outbox.scheduled s"
        "   WHERE (s.deliver_at, s.id) > ($1, $2) AND s.deliver_at <= pg_catalog.now() + $3 * interval '1 millisecond'"
        "   ORDER BY s.deliver_at, s.id LIMIT 1), pg_catalog.now()");
    static pg::Statement move(
        // outbox.cancel of the same event waits for nobody: whoever deletes the row first has it.
        "WITH due AS (DELETE FROM outbox.scheduled d WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM outbox.scheduled s"
        "   WHERE (s.deliver_at, s.id) > ($1, $2) AND s.deliver_at <= pg_catalog.now() ORDER BY s.deliver_at, s.id LIMIT $3"
        "   FOR UPDATE SKIP LOCKED)) RETURNING d.*),"
        " moved AS (INSERT INTO outbox.events (event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic)"
        " SELECT event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic FROM due ORDER BY deliver_at, id)"
        " SELECT deliver_at, id, pg_catalog.count(*) OVER () FROM due ORDER BY deliver_at DESC, id DESC LIMIT 1");
    core::Front::Place place = front.begin(core::Moment::now());
    Cell c[3];
    next.read({Param::timestamptz(place.time), Param::int8(place.id), Param::int8(horizon_ms)}).get(0, c);
    auto blind = std::chrono::ceil<std::chrono::milliseconds>(front.end(core::Moment::now())).count();
    std::int64_t wait = c[0].null ? horizon_ms : c[0].number;
    core::Front::Place come_to{c[1].number - kCommitLate, 0};
    if (wait == 0) {
        if (!alone())
            return 0;
        pg::Rows last = move.run({Param::timestamptz(place.time), Param::int8(place.id), Param::int8(limit)});
        if (last.size() > 0) {
            last.get(0, c);
            if (c[2].number == limit && c[0].number < come_to.time)
                come_to = {c[0].number, c[1].number};  // there is more
        }
    }
    transaction.commit();
    front.move(come_to);
    return blind > 0 ? std::min(wait, blind) : wait;
}

}  // namespace outbox::store
