#include "store/counters.hpp"

#include <cstddef>

#include "pg/session.hpp"
#include "pg/spi.hpp"

namespace outbox::store {

using pg::Param;

template <class H>
static Param buckets(const H &histogram)
{
    return Param::int8s(histogram.buckets, H::kBuckets);
}

bool add_counts(const Lane &lane, const core::Counts &n)
{
    // A process that ends comes here too, and could not be told to stop waiting.
    static pg::Statement row("SELECT 1 FROM outbox.counters WHERE sink_id = $1 AND lane = $2 FOR UPDATE SKIP LOCKED");
    // Added, not set: whoever counted for this lane before, and whatever a change of lanes put here, stays.
    static pg::Statement add(
        "UPDATE outbox.counters c SET unparked = unparked + $3, bytes = bytes + $4, late = late + $5, errors_outage = errors_outage + $6,"
        " errors_stuck = errors_stuck + $7, errors_poison = errors_poison + $8, errors_producer = errors_producer + $9,"
        " errors_internal = errors_internal + $10, errors_order = errors_order + $11, parked_retry = parked_retry + $12,"
        " parked_dead = parked_dead + $13, parked_behind = parked_behind + $14,"
        " delivery_us = delivery_us + $15, delivery_buckets = ARRAY(SELECT coalesce(u.a, 0) + coalesce(u.b, 0)"
        "   FROM ROWS FROM (pg_catalog.unnest(c.delivery_buckets), pg_catalog.unnest($16)) WITH ORDINALITY u(a, b, i) ORDER BY u.i),"
        " batch_events = batch_events + $17, batch_buckets = ARRAY(SELECT coalesce(u.a, 0) + coalesce(u.b, 0)"
        "   FROM ROWS FROM (pg_catalog.unnest(c.batch_buckets), pg_catalog.unnest($18)) WITH ORDINALITY u(a, b, i) ORDER BY u.i),"
        " counted_at = pg_catalog.clock_timestamp()"
        " WHERE sink_id = $1 AND lane = $2");
    if (!pg::lock_table_now("counters") || row.run({Param::int4(lane.sink_id), Param::int4(lane.lane)}).size() == 0)
        return false;
    add.run({Param::int4(lane.sink_id), Param::int4(lane.lane), Param::int8(n.unparked), Param::int8(n.bytes), Param::int8(n.late),
             Param::int8(n.outages), Param::int8(n.stuck), Param::int8(n.poison), Param::int8(n.producers), Param::int8(n.failures),
             Param::int8(n.overtaking), Param::int8(n.parked_retry), Param::int8(n.parked_dead), Param::int8(n.parked_behind),
             Param::int8(n.delivery.sum), buckets(n.delivery), Param::int8(n.batch.sum), buckets(n.batch)});
    return true;
}

}  // namespace outbox::store
