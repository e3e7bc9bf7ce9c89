#include "store/inbox.hpp"

#include "pg/spi.hpp"

namespace outbox::store {

using pg::Param;

std::int64_t forget_claims(core::Front &front, std::int64_t retention_s, std::int64_t limit)
{
    if (retention_s < 0)
        return 0;
    static pg::Statement any("SELECT 1 FROM outbox.inbox WHERE claimed_at >= $1 AND claimed_at < pg_catalog.now() - $2 * interval '1 second'"
                             " ORDER BY claimed_at LIMIT 1");
    static pg::Statement forget(
        "WITH gone AS (DELETE FROM outbox.inbox WHERE ctid = ANY (ARRAY(SELECT i.ctid FROM outbox.inbox i"
        "   WHERE i.claimed_at >= $1 AND i.claimed_at < pg_catalog.now() - $2 * interval '1 second'"
        "   ORDER BY i.claimed_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING claimed_at)"
        " SELECT pg_catalog.count(*), max(claimed_at) FROM gone");
    core::Front::Place place = front.begin(core::Moment::now());
    std::int64_t gone = 0;
    if (any.run({Param::timestamptz(place.time), Param::int8(retention_s)}).size() > 0) {  // FOR UPDATE may cost a transaction id
        pg::Cell c[2];
        forget.run({Param::timestamptz(place.time), Param::int8(retention_s), Param::int8(limit)}).get(0, c);
        gone = c[0].number;
        if (!c[1].null)
            front.move({c[1].number, 0});  // if the transaction fails yet, those come when a look begins at the front
    }
    front.end(core::Moment::now());
    return gone;
}

}  // namespace outbox::store
