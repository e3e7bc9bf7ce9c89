// What the views see of the processes. PostgreSQL regime.
#include "core/identity.hpp"
#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/spi.hpp"
#include "pg/log_writer.hpp"
#include "pg/postgres.hpp"
#include "state/settings.hpp"
#include "state/shared.hpp"

using namespace outbox;

// Shared memory has as many bytes as there was room for.
static Datum whole_characters(const char *text)
{
    int length = static_cast<int>(strlen(text));
    return PointerGetDatum(cstring_to_text_with_len(text, pg_mbcliplen(text, length, length)));
}

extern "C" {

PG_FUNCTION_INFO_V1(outbox_live_relays);
PGDLLEXPORT Datum outbox_live_relays(PG_FUNCTION_ARGS)
{
    InitMaterializedSRF(fcinfo, 0);
    auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
    for (int i = 0; shared::available() && i < shared::kMaxRelays; i++) {
        shared::RelayInfo relay = shared::relay(i);
        if (!relay.used || relay.database != MyDatabaseId)
            continue;
        bool nulls[10] = {};
        Datum values[10] = {
            Int32GetDatum(relay.sink_id),
            Int32GetDatum(relay.lane),
            Int32GetDatum(relay.pid),
            CStringGetTextDatum(shared::name(relay.state)),
            Int64GetDatum(relay.position),
            Int64GetDatum(relay.published),
            whole_characters(relay.last_error),
            TimestampTzGetDatum(relay.last_error_at),
            TimestampTzGetDatum(relay.last_published_at),
            TimestampTzGetDatum(relay.beat_at),
        };
        nulls[2] = relay.pid == 0;
        nulls[6] = relay.last_error[0] == '\0';
        nulls[7] = relay.last_error_at == 0;
        nulls[8] = relay.last_published_at == 0;
        nulls[9] = relay.beat_at == 0;
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(outbox_worker_state);
PGDLLEXPORT Datum outbox_worker_state(PG_FUNCTION_ARGS)
{
    TupleDesc desc;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "return type must be a row type");
    char home[160];
    pg::boundary([&] { strlcpy(home, pg::installation().c_str(), sizeof home); });
    int pid = shared::launcher_pid();
    bool nulls[7] = {};
    Datum values[7] = {
        BoolGetDatum(shared::available()),
        Int32GetDatum(pid),
        BoolGetDatum(shared::available() && shared::no_worker_slot()),
        BoolGetDatum(settings::publish),
        CStringGetTextDatum(home),
        CStringGetTextDatum(OUTBOX_VERSION),
        BoolGetDatum(shared::left_out(MyDatabaseId)),
    };
    nulls[1] = pid == 0;
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

// Why a sink does not publish here, from its option `home`; NULL when it does.
PG_FUNCTION_INFO_V1(outbox_foreign_home);
PGDLLEXPORT Datum outbox_foreign_home(PG_FUNCTION_ARGS)
{
    const char *home = PG_ARGISNULL(0) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(0));
    char why[256];
    pg::boundary([&] {
        std::string text = home == nullptr ? "it has no home" : core::foreign_home(home, pg::installation());
        strlcpy(why, text.c_str(), sizeof why);
    });
    if (why[0] == '\0')
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(why));
}

PG_FUNCTION_INFO_V1(outbox_wake);
PGDLLEXPORT Datum outbox_wake(PG_FUNCTION_ARGS)
{
    pg::sinks_changed_at_commit();
    PG_RETURN_VOID();
}

// BEFORE TRUNCATE on each partition. Retention's own truncation names itself (store/segments.cpp).
PG_FUNCTION_INFO_V1(outbox_refuse_truncate);
PGDLLEXPORT Datum outbox_refuse_truncate(PG_FUNCTION_ARGS)
{
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("outbox.refuse_truncate is a trigger function"));
    if (pg::retention_truncates)
        return PointerGetDatum(nullptr);
    bool pending = pg::boundary([] {
        pg::Spi spi;
        return pg::run_once("SELECT 1 FROM outbox.pending LIMIT 1").size() > 0;
    });
    if (pending)
        ereport(ERROR, errcode(ERRCODE_OBJECT_IN_USE), errmsg("outbox.events has pending events"),
                errhint("Retention truncates segments by itself. To drop events on purpose: outbox.discard."));
    return PointerGetDatum(nullptr);
}

}  // extern "C"
