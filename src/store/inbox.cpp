#include "store/inbox.hpp"

#include "pg/spi.hpp"

namespace outbox::store {

using pg::Param;

std::int64_t forget_claims(std::int64_t retention_s, std::int64_t limit)
{
    if (retention_s < 0)
        return 0;
    static pg::Statement any("SELECT 1 FROM outbox.inbox WHERE claimed_at < pg_catalog.now() - $1 * interval '1 second' LIMIT 1");
    static pg::Statement forget(
        "WITH gone AS (DELETE FROM outbox.inbox WHERE ctid = ANY (ARRAY(SELECT i.ctid FROM outbox.inbox i"
        "   WHERE i.claimed_at < pg_catalog.now() - $1 * interval '1 second' ORDER BY i.claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1)"
        " SELECT pg_catalog.count(*) FROM gone");
    if (any.run({Param::int8(retention_s)}).size() == 0)  // FOR UPDATE may cost a transaction id
        return 0;
    return forget.run({Param::int8(retention_s), Param::int8(limit)}).number();
}

}  // namespace outbox::store
