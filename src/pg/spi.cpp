#include "pg/spi.hpp"

#include "pg/guard.hpp"
#include "pg/postgres.hpp"

namespace outbox::pg {

static constexpr int kMaxParams = 24;
static constexpr int kMaxColumns = 32;

static ::Oid type_oid(Param::Type type)
{
    switch (type) {
    case Param::Type::int4: return INT4OID;
    case Param::Type::int8: return INT8OID;
    case Param::Type::xid8: return XID8OID;
    case Param::Type::xid8_array: return XID8ARRAYOID;
    case Param::Type::int8_array: return INT8ARRAYOID;
    case Param::Type::text: return TEXTOID;
    case Param::Type::uuid: return UUIDOID;
    case Param::Type::boolean: return BOOLOID;
    case Param::Type::timestamptz: return TIMESTAMPTZOID;
    }
    return InvalidOid;
}

static Datum text_datum(std::string_view utf8)
{
    char *copy = pnstrdup(utf8.data(), utf8.size());
    char *local = pg_any_to_server(copy, static_cast<int>(utf8.size()), PG_UTF8);
    return CStringGetTextDatum(local);
}

static Datum array_datum(const Param &p, ::Oid element)
{
    auto *elements = static_cast<Datum *>(palloc(sizeof(Datum) * (p.size + 1)));
    for (std::size_t i = 0; i < p.size; i++)
        elements[i] = Int64GetDatum(static_cast<const int64 *>(p.data)[i]);
    return PointerGetDatum(construct_array(elements, static_cast<int>(p.size), element, 8, FLOAT8PASSBYVAL, 'd'));
}

static Datum datum(const Param &p)
{
    switch (p.type) {
    case Param::Type::int4: return Int32GetDatum(static_cast<int32>(p.number));
    case Param::Type::int8: return Int64GetDatum(p.number);
    case Param::Type::xid8: return FullTransactionIdGetDatum(FullTransactionIdFromU64(static_cast<uint64>(p.number)));
    case Param::Type::xid8_array: return array_datum(p, XID8OID);
    case Param::Type::int8_array: return array_datum(p, INT8OID);
    case Param::Type::text: return text_datum({static_cast<const char *>(p.data), p.size});
    case Param::Type::uuid: return PointerGetDatum(p.data);
    case Param::Type::boolean: return BoolGetDatum(p.number != 0);
    case Param::Type::timestamptz: return TimestampTzGetDatum(p.number);
    }
    return 0;
}

// Plain PostgreSQL regime from here; runs inside call(). Rows go to `to`, or without it into an SPITupleTable.
static SPITupleTable *execute_plan(void **plan, const char *sql, const Param *params, int n, bool read_only, long limit, DestReceiver *to,
                                   std::size_t *count)
{
    ::Oid types[kMaxParams];
    ParamListInfo values = makeParamList(n);
    for (int i = 0; i < n; i++) {
        types[i] = type_oid(params[i].type);
        values->params[i].value = params[i].null ? static_cast<Datum>(0) : datum(params[i]);
        values->params[i].isnull = params[i].null;
        values->params[i].pflags = PARAM_FLAG_CONST;
        values->params[i].ptype = types[i];
    }
    SPIPlanPtr prepared = plan != nullptr ? static_cast<SPIPlanPtr>(*plan) : nullptr;
    if (prepared == nullptr) {
        prepared = SPI_prepare(sql, n, types);
        if (prepared == nullptr)
            elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
        if (plan != nullptr) {
            SPI_keepplan(prepared);
            *plan = prepared;
        }
    }
    bool own_snapshot = !ActiveSnapshotSet();
    if (own_snapshot)
        PushActiveSnapshot(GetTransactionSnapshot());
    SPIExecuteOptions options{};
    options.params = values;
    options.read_only = read_only;
    options.tcount = static_cast<uint64>(limit);
    options.dest = to;
    int rc = SPI_execute_plan_extended(prepared, &options);
    if (own_snapshot)
        PopActiveSnapshot();
    if (rc < 0)
        elog(ERROR, "\"%s\" failed: %s", sql, SPI_result_code_string(rc));
    *count = SPI_processed;
    return SPI_tuptable;
}

static Rows execute_guarded(void **plan, const char *sql, std::initializer_list<Param> params, bool read_only, long limit)
{
    const Param *first = params.begin();
    int n = static_cast<int>(params.size());
    std::size_t count = 0;
    std::size_t *count_out = &count;
    SPITupleTable *table = call([=] { return execute_plan(plan, sql, first, n, read_only, limit, nullptr, count_out); });
    Rows rows;
    rows.table_ = table;
    rows.count_ = count;
    return rows;
}

Rows Statement::execute(std::initializer_list<Param> params, bool read_only, long limit)
{
    return execute_guarded(&plan_, sql_, params, read_only, limit);
}

void Statement::reset(const char *sql)
{
    auto *plan = static_cast<SPIPlanPtr>(plan_);
    plan_ = nullptr;
    sql_ = sql;
    if (plan != nullptr)
        call([=] { SPI_freeplan(plan); });
}

Rows Statement::run(std::initializer_list<Param> params) { return execute(params, false, 0); }
Rows Statement::read(std::initializer_list<Param> params, long limit) { return execute(params, true, limit); }

Rows run_once(const char *sql, std::initializer_list<Param> params)
{
    return execute_guarded(nullptr, sql, params, false, 0);
}

Rows read_once(const char *sql, std::initializer_list<Param> params)
{
    return execute_guarded(nullptr, sql, params, true, 0);
}

static std::string_view varlena_bytes(Datum value, bool is_text)
{
    auto *v = reinterpret_cast<struct varlena *>(PG_DETOAST_DATUM_PACKED(value));
    std::string_view bytes{VARDATA_ANY(v), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(v))};
    if (is_text && GetDatabaseEncoding() != PG_UTF8) {
        char *utf8 = pg_server_to_any(bytes.data(), static_cast<int>(bytes.size()), PG_UTF8);
        if (utf8 != bytes.data())
            bytes = {utf8, strlen(utf8)};
    }
    return bytes;
}

static void decode(Form_pg_attribute attribute, Datum value, bool null, Cell *cell)
{
    cell->null = null;
    cell->number = 0;
    cell->bytes = {};
    if (null)
        return;
    switch (attribute->atttypid) {
    case INT2OID: cell->number = DatumGetInt16(value); return;
    case INT4OID: cell->number = DatumGetInt32(value); return;
    case INT8OID: cell->number = DatumGetInt64(value); return;
    case XID8OID: cell->number = static_cast<int64>(U64FromFullTransactionId(DatumGetFullTransactionId(value))); return;
    case OIDOID: cell->number = DatumGetObjectId(value); return;
    case BOOLOID: cell->number = DatumGetBool(value); return;
    case TIMESTAMPTZOID: cell->number = DatumGetTimestampTz(value); return;
    case UUIDOID: cell->bytes = {reinterpret_cast<const char *>(DatumGetUUIDP(value)->data), UUID_LEN}; return;
    case NAMEOID: cell->bytes = NameStr(*DatumGetName(value)); return;
    case BYTEAOID: cell->bytes = varlena_bytes(value, false); return;
    case TEXTOID:
    case VARCHAROID:
    case JSONOID: cell->bytes = varlena_bytes(value, true); return;
    default: elog(ERROR, "a column of type %u cannot be read: cast it to text", attribute->atttypid);
    }
}

static void walk_rows(SPITupleTable *table, std::size_t from, std::size_t to, bool (*row)(void *, const Cell *), void *arg)
{
    Datum values[kMaxColumns];
    bool nulls[kMaxColumns];
    Cell cells[kMaxColumns];
    TupleDesc desc = table->tupdesc;
    if (desc->natts > kMaxColumns)
        elog(ERROR, "too many columns");
    // Large values lie in a TOAST table, which is read under a snapshot; the statement's own is gone, if it had one.
    bool own_snapshot = !ActiveSnapshotSet();
    if (own_snapshot)
        PushActiveSnapshot(GetTransactionSnapshot());
    for (std::size_t i = from; i < to; i++) {
        heap_deform_tuple(table->vals[i], desc, values, nulls);
        for (int c = 0; c < desc->natts; c++)
            decode(TupleDescAttr(desc, c), values[c], nulls[c], &cells[c]);
        if (!row(arg, cells))
            break;
    }
    if (own_snapshot)
        PopActiveSnapshot();
}

// ---- rows as they come ----------------------------------------------------------------------------------------------------

struct Receiver {
    DestReceiver base;  // first: PostgreSQL knows this part
    RowTaker to;
    std::size_t shown;
};

static bool receive(TupleTableSlot *slot, DestReceiver *self)
{
    auto *receiver = reinterpret_cast<Receiver *>(self);
    TupleDesc desc = slot->tts_tupleDescriptor;
    Cell cells[kMaxColumns];
    slot_getallattrs(slot);
    for (int c = 0; c < desc->natts; c++)
        decode(TupleDescAttr(desc, c), slot->tts_values[c], slot->tts_isnull[c], &cells[c]);
    receiver->shown++;
    return receiver->to.row(receiver->to.arg, cells);
}

static void start_receiving(DestReceiver *, int, TupleDesc desc)
{
    if (desc->natts > kMaxColumns)
        elog(ERROR, "too many columns");
}

static void nothing_to_do(DestReceiver *) {}

std::size_t Statement::show(void **plan, const char *sql, std::initializer_list<Param> params, const RowTaker &to)
{
    Receiver receiver{{receive, start_receiving, nothing_to_do, nothing_to_do, DestNone}, to, 0};
    const Param *first = params.begin();
    int n = static_cast<int>(params.size());
    DestReceiver *dest = &receiver.base;
    call([=] {
        std::size_t processed = 0;
        execute_plan(plan, sql, first, n, true, 0, dest, &processed);
    });
    return receiver.shown;
}

// ---- rows -----------------------------------------------------------------------------------------------------------------

void Rows::walk(bool (*row)(void *, const Cell *), void *arg) const
{
    auto *table = static_cast<SPITupleTable *>(table_);
    std::size_t count = count_;
    if (count > 0)
        call([=] { walk_rows(table, 0, count, row, arg); });
}

void Rows::get(std::size_t i, Cell *cells) const
{
    auto *table = static_cast<SPITupleTable *>(table_);
    struct Copy {
        Cell *to;
        int columns;
    } copy{cells, table->tupdesc->natts};
    Copy *arg = &copy;
    call([=] {
        walk_rows(table, i, i + 1,
                  [](void *p, const Cell *from) {
                      auto *c = static_cast<Copy *>(p);
                      for (int k = 0; k < c->columns; k++)
                          c->to[k] = from[k];
                      return true;
                  },
                  arg);
    });
}

std::int64_t Rows::number(std::size_t i, int column) const
{
    Cell cells[kMaxColumns];
    get(i, cells);
    return cells[column].number;
}

}  // namespace outbox::pg
