// outbox.capture: the trigger that adds an event for each row changed. PostgreSQL regime.
//
// It runs with the rights of whoever changes the row, and so does what making JSON of a row can call: a cast to json that a
// user made for a type of his own. Nothing here needs more rights. The event is appended as add_event appends it, without a
// look at rights on the log; the right to have it written was asked for when the trigger was made, since CREATE TRIGGER needs
// TRIGGER on the table and EXECUTE on this function. So it is not SECURITY DEFINER, and runs nobody's code with its owner's.
#include "api/write.hpp"

using namespace outbox;

namespace {

// The trigger's arguments; behind them the columns of the payload, if it does not have all.
enum Argument { kTypeOfAggregate, kKeyColumn, kInserted, kUpdated, kDeleted, kColumns };

// What one trigger does with one table; kept for the rows of a statement.
struct Capture {
    int columns;
    int *number;      // of each column of the payload in the table, from 0
    TupleDesc shape;  // of the payload
    int key;          // its number
    FmgrInfo key_out;
    bool zoned;       // the text of a column or of the key may depend on the time zone
};

// A row of the table at hand.
struct Row {
    Datum *values;
    bool *nulls;
};

bool has_value(Form_pg_attribute column)
{
    return !column->attisdropped && column->attgenerated != 'v';  // virtual: computed when read, and not in the row
}

int number_of(Relation table, const char *column)
{
    TupleDesc desc = RelationGetDescr(table);
    for (int i = 0; i < desc->natts; i++) {
        if (has_value(TupleDescAttr(desc, i)) && namestrcmp(&TupleDescAttr(desc, i)->attname, column) == 0)
            return i;
    }
    ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
            errmsg("column \"%s\" of table \"%s\", which outbox captures, is not there any more", column, RelationGetRelationName(table)),
            errhint("Call outbox.capture again with the columns as they are now, or outbox.uncapture."));
}

bool is_zoned(::Oid type)
{
    switch (type) {
    case BOOLOID: case INT2OID: case INT4OID: case INT8OID: case FLOAT4OID: case FLOAT8OID: case NUMERICOID: case TEXTOID:
    case VARCHAROID: case BPCHAROID: case NAMEOID: case BYTEAOID: case UUIDOID: case JSONOID: case JSONBOID: case DATEOID:
    case TIMEOID: case TIMESTAMPOID: case INTERVALOID:
        return false;
    default: return true;
    }
}

Capture *learn(const Trigger *trigger, Relation table)
{
    TupleDesc desc = RelationGetDescr(table);
    auto *c = static_cast<Capture *>(palloc0(sizeof(Capture)));
    c->number = static_cast<int *>(palloc(sizeof(int) * static_cast<Size>(Max(desc->natts, trigger->tgnargs))));
    if (trigger->tgnargs > kColumns) {
        for (int i = kColumns; i < trigger->tgnargs; i++)
            c->number[c->columns++] = number_of(table, trigger->tgargs[i]);
    } else {
        for (int i = 0; i < desc->natts; i++) {
            if (has_value(TupleDescAttr(desc, i)))
                c->number[c->columns++] = i;
        }
    }
    TupleDesc shape = CreateTemplateTupleDesc(c->columns);
    for (int i = 0; i < c->columns; i++) {
        TupleDescCopyEntry(shape, static_cast<AttrNumber>(i + 1), desc, static_cast<AttrNumber>(c->number[i] + 1));
        c->zoned = c->zoned || is_zoned(TupleDescAttr(shape, i)->atttypid);
    }
    c->shape = BlessTupleDesc(shape);
    c->key = number_of(table, trigger->tgargs[kKeyColumn]);
    ::Oid out, type = TupleDescAttr(desc, c->key)->atttypid;
    bool varlena;
    getTypeOutputInfo(type, &out, &varlena);
    fmgr_info_cxt(out, &c->key_out, CurrentMemoryContext);
    c->zoned = c->zoned || is_zoned(type);
    return c;
}

Row deform(Relation table, HeapTuple tuple)
{
    TupleDesc desc = RelationGetDescr(table);
    Row row{static_cast<Datum *>(palloc(sizeof(Datum) * static_cast<Size>(desc->natts))),
            static_cast<bool *>(palloc(sizeof(bool) * static_cast<Size>(desc->natts)))};
    heap_deform_tuple(tuple, desc, row.values, row.nulls);
    return row;
}

// To the byte, as it would be in JSON: a type's own `=` would be a user's function, and takes 1.0 for 1.00.
bool same(Relation table, int column, const Row &a, const Row &b)
{
    if (a.nulls[column] || b.nulls[column])
        return a.nulls[column] && b.nulls[column];
    Form_pg_attribute type = TupleDescAttr(RelationGetDescr(table), column);
    // The first look is enough for what the UPDATE left alone, and fetches nothing that is stored out of line.
    return datumIsEqual(a.values[column], b.values[column], type->attbyval, type->attlen) ||
           datum_image_eq(a.values[column], b.values[column], type->attbyval, type->attlen);
}

bool unchanged(Relation table, const Capture *c, const Row &a, const Row &b)
{
    for (int i = 0; i < c->columns; i++) {
        if (!same(table, c->number[i], a, b))
            return false;
    }
    return true;
}

// A row's JSON must not depend on the session that changes it. Only what differs is set, since it costs. Returns the level to
// go back to; 0: nothing was set.
int pin_output(bool zoned)
{
    int level = 0;
    auto pin = [&level](const char *name, const char *value) {
        if (level == 0)
            level = NewGUCNestLevel();
        (void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
    };
    if (DateStyle != USE_ISO_DATES)
        pin("datestyle", "ISO");
    if (IntervalStyle != INTSTYLE_POSTGRES)
        pin("intervalstyle", "postgres");
    if (bytea_output != BYTEA_OUTPUT_HEX)
        pin("bytea_output", "hex");
    if (extra_float_digits < 1)
        pin("extra_float_digits", "1");
    const char *zone = pg_get_timezone_name(session_timezone);
    if (zoned && strcmp(zone, "UTC") != 0 && strcmp(zone, "Etc/UTC") != 0)
        pin("timezone", "UTC");
    return level;
}

void add(const Trigger *trigger, Capture *c, Argument event_type, const Row &row)
{
    using namespace pg;
    if (*trigger->tgargs[event_type] == '\0')
        return;  // not captured
    EventRow event;
    int level = pin_output(c->zoned);
    if (!row.nulls[c->key])
        event.set(kAggregateId, CStringGetTextDatum(OutputFunctionCall(&c->key_out, row.values[c->key])));
    auto *part = static_cast<Datum *>(palloc(sizeof(Datum) * static_cast<Size>(c->columns)));
    auto *part_nulls = static_cast<bool *>(palloc(sizeof(bool) * static_cast<Size>(c->columns)));
    for (int i = 0; i < c->columns; i++) {
        part[i] = row.values[c->number[i]];
        part_nulls[i] = row.nulls[c->number[i]];
    }
    HeapTuple record = heap_form_tuple(c->shape, part, part_nulls);
    event.set(kPayload, DirectFunctionCall1(row_to_json, HeapTupleGetDatum(record)));
    if (level != 0)
        AtEOXact_GUC(true, level);
    event.set(kEventType, CStringGetTextDatum(trigger->tgargs[event_type]));
    if (*trigger->tgargs[kTypeOfAggregate] != '\0')
        event.set(kAggregateType, CStringGetTextDatum(trigger->tgargs[kTypeOfAggregate]));
    (void) write_event(event);
}

}  // namespace

extern "C" {

PG_FUNCTION_INFO_V1(outbox_capture_row);
PGDLLEXPORT Datum outbox_capture_row(PG_FUNCTION_ARGS)
{
    auto *data = reinterpret_cast<TriggerData *>(fcinfo->context);
    if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
        data->tg_trigger->tgnargs < kColumns)
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("outbox.capture_row is for triggers that outbox.capture makes"));
    Relation table = data->tg_relation;
    auto *c = static_cast<Capture *>(fcinfo->flinfo->fn_extra);
    if (c == nullptr) {
        MemoryContext here = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
        fcinfo->flinfo->fn_extra = c = learn(data->tg_trigger, table);
        MemoryContextSwitchTo(here);
    }
    Row row = deform(table, data->tg_trigtuple);
    if (TRIGGER_FIRED_BY_INSERT(data->tg_event)) {
        add(data->tg_trigger, c, kInserted, row);
    } else if (TRIGGER_FIRED_BY_DELETE(data->tg_event)) {
        add(data->tg_trigger, c, kDeleted, row);
    } else if (TRIGGER_FIRED_BY_UPDATE(data->tg_event)) {
        Row after = deform(table, data->tg_newtuple);
        if (!same(table, c->key, row, after)) {  // each key's events are a history of their own
            add(data->tg_trigger, c, kDeleted, row);
            add(data->tg_trigger, c, kInserted, after);
        } else if (!unchanged(table, c, row, after)) {
            add(data->tg_trigger, c, kUpdated, after);
        }
    }
    return PointerGetDatum(nullptr);
}

PG_FUNCTION_INFO_V1(outbox_check_types);
PGDLLEXPORT Datum outbox_check_types(PG_FUNCTION_ARGS)
{
    EventRow event;
    if (!PG_ARGISNULL(0))
        event.set(pg::kAggregateType, PG_GETARG_DATUM(0));
    if (!PG_ARGISNULL(1))
        event.set(pg::kEventType, PG_GETARG_DATUM(1));
    check_event(event.values, event.nulls);
    PG_RETURN_VOID();
}

}  // extern "C"
