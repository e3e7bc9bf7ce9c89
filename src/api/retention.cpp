// Retention by hand. PostgreSQL regime.
#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/postgres.hpp"
#include "state/settings.hpp"
#include "store/inbox.hpp"
#include "store/segments.hpp"

using namespace outbox;

extern "C" {

PG_FUNCTION_INFO_V1(outbox_keep_house);
PGDLLEXPORT Datum outbox_keep_house(PG_FUNCTION_ARGS)
{
    constexpr int64 most_claims = 100'000;
    TupleDesc desc;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "return type must be a row type");
    // What it decides by must be as it is now, not as an old snapshot has it.
    if (IsolationUsesXactSnapshot())
        ereport(ERROR, errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("outbox.retention_run needs the isolation level READ COMMITTED"));
    store::Kept kept;
    int64 claims = 0;
    pg::boundary([&] {
        pg::Spi spi;
        kept = store::keep_segments_now(settings::retention_s);
        core::Front front;
        claims = store::forget_claims(front, settings::inbox_retention_s, most_claims);
    });
    bool nulls[3] = {};
    Datum values[3] = {BoolGetDatum(kept.turned), Int32GetDatum(kept.truncated), Int64GetDatum(claims)};
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

}  // extern "C"
