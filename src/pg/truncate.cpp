#include "pg/truncate.hpp"

#include <cstdio>

#include "pg/guard.hpp"
#include "pg/log_writer.hpp"
#include "pg/spi.hpp"

namespace outbox::pg {

static ::Oid segment_oid(int segment)
{
    char name[NAMEDATALEN];
    snprintf(name, sizeof name, "events_%d", segment);
    return outbox_relation(name);
}

bool lock_segment_now(int segment)
{
    return call([=] { return ConditionalLockRelationOid(segment_oid(segment), AccessExclusiveLock); });
}

void truncate_segment(int segment)
{
    char sql[64];
    snprintf(sql, sizeof sql, "TRUNCATE ONLY outbox.events_%d", segment);
    retention_truncates = true;
    try {
        run_once(sql);
    } catch (...) {
        retention_truncates = false;
        throw;
    }
    retention_truncates = false;
}

}  // namespace outbox::pg
