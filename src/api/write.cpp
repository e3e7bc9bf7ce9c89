// Writing events: outbox.add_event in its twelve signatures, and the trigger that gives a plain INSERT the same checks.
// PostgreSQL regime; core's checks are reached through a boundary.
#include "api/write.hpp"

#include <cstring>
#include <memory>

#include "api/trace.hpp"
#include "core/checks.hpp"
#include "core/glob.hpp"
#include "core/keyhash.hpp"
#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/log_writer.hpp"
#include "state/settings.hpp"

using namespace outbox;

namespace {

std::string_view view(text *t)
{
    return t == nullptr ? std::string_view{} : std::string_view{VARDATA_ANY(t), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(t))};
}

// Core's checks are written for UTF-8.
std::string_view utf8(text *t)
{
    std::string_view bytes = view(t);
    if (t == nullptr || GetDatabaseEncoding() == PG_UTF8)
        return bytes;
    char *converted = pg_server_to_any(bytes.data(), static_cast<int>(bytes.size()), PG_UTF8);
    return converted == bytes.data() ? bytes : std::string_view{converted, strlen(converted)};
}

text *text_or_null(Datum value, bool null) { return null ? nullptr : DatumGetTextPP(value); }

// In a database that is not UTF8 text may have no equivalent there (SQL_ASCII: any bytes). Better here, where the caller can
// do something about it, than in a relay.
text *convertible(text *t, const char *argument)
{
    pg::boundary([=] {
        try {
            pg::call([=] { (void) utf8(t); });
        } catch (pg::Error &error) {
            error.detail = error.message;
            error.message = std::string("argument \"") + argument + "\" cannot be converted to UTF-8";
            error.hint = "Events are sent in UTF-8.";
            throw;
        }
    });
    return t;
}

// text must be JSON and is kept byte for byte.
Datum checked_json(text *payload)
{
    pg::boundary([=] {
        try {
            pg::call([=] { DirectFunctionCall1(json_in, CStringGetDatum(text_to_cstring(payload))); });
        } catch (pg::Error &error) {
            if (error.sqlstate != ERRCODE_INVALID_TEXT_REPRESENTATION && error.sqlstate != ERRCODE_UNTRANSLATABLE_CHARACTER)
                throw;
            error.detail = error.message + (error.detail.empty() ? "" : ": " + error.detail);
            error.message = "argument \"payload\" is not valid JSON";
            error.hint = "Text payloads must be JSON; pass anything else as bytea.";
            throw;
        }
    });
    return PointerGetDatum(payload);
}

// What the signature at hand takes; kept with the call site.
struct Signature {
    ::Oid key, payload;
};

const Signature *signature(FunctionCallInfo fcinfo)
{
    auto *s = static_cast<Signature *>(fcinfo->flinfo->fn_extra);
    if (s != nullptr)
        return s;
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
    s = static_cast<Signature *>(MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(Signature)));
    auto *types = &reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proargtypes;
    s->key = types->values[0];
    s->payload = types->values[2];
    ReleaseSysCache(tuple);
    fcinfo->flinfo->fn_extra = s;
    return s;
}

// Values that a column's default gave to the row at hand: how the trigger tells an INSERT's row from one that a restore
// brings, which comes with all its columns. Each is good for one row.
int64 default_id = 0;
int16 default_segment = -1;

bool take_default_id(Datum value, bool null)
{
    bool taken = !null && DatumGetInt64(value) == default_id;
    default_id = 0;
    return taken;
}

bool take_default_segment(Datum value, bool null)
{
    bool taken = !null && DatumGetInt16(value) == default_segment;
    default_segment = -1;
    return taken;
}

TimestampTz checked_time(TimestampTz deliver_at)
{
    if (TIMESTAMP_NOT_FINITE(deliver_at))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("deliver_at must be a time that comes"));
    return deliver_at;
}

bool is_current_xid(Datum value) { return FullTransactionIdEquals(DatumGetFullTransactionId(value), GetTopFullTransactionId()); }

Datum key_text(::Oid type, Datum value)
{
    switch (type) {
    case INT8OID: return CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(int8out, value)));
    case UUIDOID: return CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(uuid_out, value)));
    default: return PointerGetDatum(DatumGetTextPP(value));
    }
}

}  // namespace

void outbox::check_event(const Datum *values, const bool *nulls)
{
    using namespace pg;
    bool convert = GetDatabaseEncoding() != PG_UTF8;
    auto column = [&](EventColumn c, const char *argument) {
        text *t = text_or_null(values[c - 1], nulls[c - 1]);
        return utf8(convert && t != nullptr ? convertible(t, argument) : t);
    };
    core::Event event;
    event.aggregate_type = column(kAggregateType, "aggregate_type");
    event.aggregate_id = column(kAggregateId, "aggregate_id");
    event.event_type = column(kEventType, "event_type");
    event.topic = column(kTopic, "topic");
    if (convert)
        (void) column(kPayload, "payload");
    // The payload's content is not looked at: its size is enough, and a toasted one is not fetched.
    if (!nulls[kPayload - 1])
        event.payload = core::Bytes("", toast_raw_datum_size(values[kPayload - 1]) - VARHDRSZ);
    else if (!nulls[kPayloadBytes - 1])
        event.payload = core::Bytes("", toast_raw_datum_size(values[kPayloadBytes - 1]) - VARHDRSZ);
    if (!nulls[kHeaders - 1]) {
        Jsonb *jsonb = DatumGetJsonbP(values[kHeaders - 1]);
        char *headers = JsonbToCString(nullptr, &jsonb->root, VARSIZE(jsonb));
        text *t = cstring_to_text(headers);
        event.headers = utf8(convert ? convertible(t, "headers") : t);
    }
    std::size_t limit = static_cast<std::size_t>(settings::max_event_size);
    pg::boundary([&] {
        std::optional<core::Problem> problem = core::check_event(event, limit);
        if (!problem)
            return;
        Error error;
        error.sqlstate = sqlstate(problem->sqlstate.data());
        error.message = problem->message;
        error.hint = problem->hint;
        throw error;
    });
}

Datum outbox::write_event(EventRow &row)
{
    using namespace pg;
    const Datum *values = row.values;
    const bool *nulls = row.nulls;
    bool scheduled = !nulls[kDeliverAt - 1];
    if (traced())
        row.set(kHeaders, with_trace(values[kHeaders - 1], nulls[kHeaders - 1]));
    check_event(values, nulls);
    if (nulls[kEventId - 1])
        row.set(kEventId, new_event_id());
    if (scheduled)
        (void) checked_time(DatumGetTimestampTz(values[kDeliverAt - 1]));
    else if (settings::lock_keys && !nulls[kAggregateId - 1])
        lock_key(DatumGetTextPP(values[kAggregateId - 1]));
    row.set(kId, Int64GetDatum(draw_id()));
    row.set(kXid, FullTransactionIdGetDatum(GetTopFullTransactionId()));
    int16 segment = -1;
    if (!scheduled) {
        segment = current_segment();
        row.set(kSegment, Int16GetDatum(segment));
    }
    row.set(kCreatedAt, TimestampTzGetDatum(GetCurrentTimestamp()));
    insert_event(scheduled ? pg::scheduled() : partition(segment), row.values, row.nulls);
    wake_at_commit();
    return values[kEventId - 1];
}

extern "C" {

PG_FUNCTION_INFO_V1(outbox_add_event);
PGDLLEXPORT Datum outbox_add_event(PG_FUNCTION_ARGS)
{
    using namespace pg;
    PreventCommandIfReadOnly("outbox.add_event()");
    PreventCommandIfParallelMode("outbox.add_event()");
    const Signature *s = signature(fcinfo);
    EventRow row;

    if (!PG_ARGISNULL(0))
        row.set(kAggregateId, key_text(s->key, PG_GETARG_DATUM(0)));
    if (PG_ARGISNULL(1))
        ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"event_type\" must not be NULL"));
    row.set(kEventType, PG_GETARG_DATUM(1));
    if (!PG_ARGISNULL(2)) {
        switch (s->payload) {
        case JSONOID: row.set(kPayload, PG_GETARG_DATUM(2)); break;
        case JSONBOID: row.set(kPayload, CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(jsonb_out, PG_GETARG_DATUM(2))))); break;
        case BYTEAOID: row.set(kPayloadBytes, PG_GETARG_DATUM(2)); break;
        default: row.set(kPayload, checked_json(PG_GETARG_TEXT_PP(2)));
        }
    }
    if (!PG_ARGISNULL(3))
        row.set(kAggregateType, PG_GETARG_DATUM(3));
    if (!PG_ARGISNULL(4))
        row.set(kTopic, PG_GETARG_DATUM(4));
    if (!PG_ARGISNULL(5))
        row.set(kHeaders, PG_GETARG_DATUM(5));
    if (!PG_ARGISNULL(6))
        row.set(kDeliverAt, PG_GETARG_DATUM(6));
    if (!PG_ARGISNULL(7))
        row.set(kEventId, PG_GETARG_DATUM(7));
    PG_RETURN_DATUM(write_event(row));
}

// BEFORE INSERT on each partition, and on outbox.scheduled.
static Datum checked_row(FunctionCallInfo fcinfo, bool scheduled)
{
    using namespace pg;
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("this is a trigger function"));
    auto *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);
    TupleDesc desc = RelationGetDescr(trigger->tg_relation);
    Datum values[kEventColumns];
    bool nulls[kEventColumns];
    check_columns(trigger->tg_relation);
    heap_deform_tuple(trigger->tg_trigtuple, desc, values, nulls);

    // What a restore brings was checked when it was written: a row with another transaction's id or, should that happen to
    // be ours, one of which nothing is a default. Only the tables' owner can write such rows.
    bool id_given = !take_default_id(values[kId - 1], nulls[kId - 1]);
    bool segment_given = scheduled || !take_default_segment(values[kSegment - 1], nulls[kSegment - 1]);
    bool restored = !nulls[kXid - 1] && (!is_current_xid(values[kXid - 1]) || (id_given && segment_given && !nulls[kId - 1]));
    if (restored)
        return PointerGetDatum(trigger->tg_trigtuple);
    if (segment_given && !scheduled)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("segment is given by the server"),
                errhint("Leave the column out of the INSERT."));

    if (!nulls[kPayload - 1] && !nulls[kPayloadBytes - 1])
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("payload and payload_bytes are both set"),
                errhint("An event has one payload, or none (a tombstone)."));
    if (nulls[kEventType - 1])
        ereport(ERROR, errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("event_type must not be NULL"));
    bool with_headers = traced();
    if (with_headers) {
        values[kHeaders - 1] = with_trace(values[kHeaders - 1], nulls[kHeaders - 1]);
        nulls[kHeaders - 1] = false;
    }
    check_event(values, nulls);

    Datum replace[kEventColumns];
    bool replace_null[kEventColumns] = {};
    bool replaced[kEventColumns] = {};
    auto set = [&](EventColumn column, Datum value) {
        replace[column - 1] = value;
        replaced[column - 1] = true;
    };
    if (with_headers)
        set(kHeaders, values[kHeaders - 1]);
    if (scheduled && !nulls[kDeliverAt - 1])
        (void) checked_time(DatumGetTimestampTz(values[kDeliverAt - 1]));
    if (nulls[kEventId - 1])
        set(kEventId, new_event_id());
    if (nulls[kXid - 1])
        set(kXid, FullTransactionIdGetDatum(GetTopFullTransactionId()));
    bool locked = !scheduled && settings::lock_keys && !nulls[kAggregateId - 1];
    if (locked)
        lock_key(DatumGetTextPP(values[kAggregateId - 1]));
    // Whoever waited for a key's lock needs an id above that of the event that it waited for.
    if (locked || id_given)
        set(kId, Int64GetDatum(draw_id()));
    set(kCreatedAt, TimestampTzGetDatum(GetCurrentTimestamp()));
    wake_at_commit();
    return PointerGetDatum(heap_modify_tuple(trigger->tg_trigtuple, desc, replace, replace_null, replaced));
}

PG_FUNCTION_INFO_V1(outbox_check_event);
PGDLLEXPORT Datum outbox_check_event(PG_FUNCTION_ARGS) { return checked_row(fcinfo, false); }

PG_FUNCTION_INFO_V1(outbox_check_scheduled);
PGDLLEXPORT Datum outbox_check_scheduled(PG_FUNCTION_ARGS) { return checked_row(fcinfo, true); }

PG_FUNCTION_INFO_V1(outbox_next_id);
PGDLLEXPORT Datum outbox_next_id(PG_FUNCTION_ARGS)
{
    default_id = pg::draw_id();
    PG_RETURN_INT64(default_id);
}

PG_FUNCTION_INFO_V1(outbox_current_segment);
PGDLLEXPORT Datum outbox_current_segment(PG_FUNCTION_ARGS)
{
    (void) GetTopTransactionId();  // the segment is read after the transaction has its id: see outbox.segments.fence
    default_segment = pg::current_segment();
    PG_RETURN_INT16(default_segment);
}

PG_FUNCTION_INFO_V1(outbox_new_event_id);
PGDLLEXPORT Datum outbox_new_event_id(PG_FUNCTION_ARGS) { PG_RETURN_DATUM(pg::new_event_id()); }

PG_FUNCTION_INFO_V1(outbox_lane_of);
PGDLLEXPORT Datum outbox_lane_of(PG_FUNCTION_ARGS)
{
    if (PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_GETARG_INT32(2) < 1)
        PG_RETURN_NULL();
    core::Bytes key = utf8(PG_ARGISNULL(0) ? nullptr : PG_GETARG_TEXT_PP(0));
    PG_RETURN_INT32(core::lane_of(key, PG_GETARG_INT64(1), PG_GETARG_INT32(2)));
}

PG_FUNCTION_INFO_V1(outbox_takes);
PGDLLEXPORT Datum outbox_takes(PG_FUNCTION_ARGS)
{
    if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
        PG_RETURN_NULL();
    std::string_view globs = utf8(PG_GETARG_TEXT_PP(0));
    if (globs == "*")
        PG_RETURN_BOOL(true);
    std::string_view aggregate_type = utf8(PG_ARGISNULL(1) ? nullptr : PG_GETARG_TEXT_PP(1));
    std::string_view event_type = utf8(PG_GETARG_TEXT_PP(2));
    bool takes = pg::boundary([&] {
        // A query asks with one filter for all its rows.
        static struct Kept {
            std::string globs;
            core::EventFilter filter;
            bool valid;
        } *kept;
        if (kept == nullptr || kept->globs != globs) {
            auto next = std::make_unique<Kept>();
            std::string error, hint;
            next->globs = globs;
            next->valid = next->filter.parse(next->globs, error, hint);
            delete kept;
            kept = next.release();
        }
        return kept->valid && kept->filter.matches(aggregate_type, event_type);
    });
    PG_RETURN_BOOL(takes);
}

}  // extern "C"
