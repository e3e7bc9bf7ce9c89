#include "store/scheduled.hpp"

#include <algorithm>

#include "pg/session.hpp"
#include "pg/spi.hpp"

namespace outbox::store {

using pg::Cell;
using pg::Param;

// One process at a time moves them: two would interleave their ids.
static bool alone() { return pg::only_one(pg::Chore::scheduled); }

std::int64_t move_due(std::int64_t limit)
{
    pg::Transaction transaction;
    if (!pg::lock_extension().present)
        return -1;
    // now(): what clock_timestamp() says may change from row to row, so it is no bound for an index: every waiting row would be read.
    static pg::Statement next(
        "SELECT (extract(epoch FROM s.deliver_at - pg_catalog.now()) * 1000)::bigint FROM outbox.scheduled s"
        " ORDER BY s.deliver_at LIMIT 1");
    static pg::Statement move(
        // outbox.cancel of the same event waits for nobody: whoever deletes the row first has it.
        "WITH due AS (DELETE FROM outbox.scheduled d WHERE d.ctid = ANY (ARRAY(SELECT s.ctid FROM outbox.scheduled s"
        "   WHERE s.deliver_at <= pg_catalog.now() ORDER BY s.deliver_at, s.id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING d.*)"
        " INSERT INTO outbox.events (event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic)"
        " SELECT event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic FROM due ORDER BY deliver_at, id");
    pg::Rows rows = next.read();
    if (rows.size() > 0 && rows.number() <= 0 && alone()) {
        move.run({Param::int8(limit)});
        rows = next.read();
    }
    std::int64_t wait = rows.size() == 0 ? -1 : std::max<std::int64_t>(rows.number(), 0);
    transaction.commit();
    return wait;
}

}  // namespace outbox::store
