#include "pg/log_writer.hpp"

#include "core/uuid.hpp"
#include "state/shared.hpp"

extern "C" {
#include "common/hashfn.h"
}

namespace outbox::pg {

bool retention_truncates = false;

::Oid outbox_schema()
{
    ::Oid schema = get_namespace_oid("outbox", true);
    if (!OidIsValid(schema))
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_SCHEMA), errmsg("the extension \"outbox\" is not installed in this database"),
                errhint("Run CREATE EXTENSION outbox."));
    return schema;
}

::Oid outbox_relation(const char *name)
{
    ::Oid relation = get_relname_relid(name, outbox_schema());
    if (!OidIsValid(relation))
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_TABLE), errmsg("outbox.%s does not exist", name),
                errhint("The extension \"outbox\" is damaged or of another version: ALTER EXTENSION outbox UPDATE."));
    return relation;
}

// What each event needs. By name they would be two lookups each, for every event; they are forgotten when a table or a
// schema of any name changes.
static struct Known {
    ::Oid ids, turn, scheduled, partitions[kSegments];
} known;
static uint64 forgotten;

static void forget(Datum, int, uint32)
{
    known = {};
    forgotten++;
}

static ::Oid known_relation(::Oid &oid, const char *name)
{
    if (OidIsValid(oid))
        return oid;
    static bool registered;
    if (!registered) {
        CacheRegisterSyscacheCallback(RELNAMENSP, forget, static_cast<Datum>(0));
        CacheRegisterSyscacheCallback(NAMESPACENAME, forget, static_cast<Datum>(0));
        registered = true;
    }
    uint64 before = forgotten;
    ::Oid found = outbox_relation(name);
    if (forgotten == before)  // else something changed while we looked
        oid = found;
    return found;
}

::Oid partition(int segment)
{
    ::Oid &oid = known.partitions[segment];
    char name[NAMEDATALEN];
    if (!OidIsValid(oid))
        snprintf(name, sizeof name, "events_%d", segment);
    return known_relation(oid, name);
}

::Oid scheduled() { return known_relation(known.scheduled, "scheduled"); }

int64 draw_id()
{
    (void) GetTopTransactionId();
    return nextval_internal(known_relation(known.ids, "events_id_seq"), false);
}

// A sequence's relation has one tuple. Reading it there takes no privilege and no snapshot: the turn moves for every
// writer at once. The lock is kept, as nextval keeps its own: to take it again costs next to nothing.
static int64 sequence_last_value(::Oid sequence)
{
    Relation rel = relation_open(sequence, AccessShareLock);
    Buffer buffer = ReadBuffer(rel, 0);
    LockBuffer(buffer, BUFFER_LOCK_SHARE);
    Page page = BufferGetPage(buffer);
    ItemId item = PageGetItemId(page, FirstOffsetNumber);
    auto *data = reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item));
    auto *form = reinterpret_cast<Form_pg_sequence_data>(reinterpret_cast<char *>(data) + data->t_hoff);
    int64 value = form->last_value;
    UnlockReleaseBuffer(buffer);
    relation_close(rel, NoLock);
    return value;
}

int64 current_turn() { return sequence_last_value(known_relation(known.turn, "turn")); }

int16 current_segment() { return static_cast<int16>(current_turn() % kSegments); }

// Drawn many at once: asking costs much more than what is asked for.
static const core::RandomBytes &random_bytes()
{
    static core::RandomBytes drawn[32];
    static int left;
    if (left == 0) {
        if (!pg_strong_random(drawn, sizeof drawn))
            ereport(ERROR, errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values"));
        left = lengthof(drawn);
    }
    return drawn[--left];
}

Datum new_event_id()
{
    static core::Uuid7Source source;
    int64 now = GetCurrentTimestamp() + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
    core::EventId id = source.next(now, random_bytes());
    auto *uuid = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    memcpy(uuid->data, id.data(), UUID_LEN);
    return UUIDPGetDatum(uuid);
}

void lock_key(text *key)
{
    // Two-key form: the first key keeps us apart from the application's own advisory locks.
    constexpr int32 kClass = 0x6f757462;  // "outb"
    auto hash = static_cast<int32>(hash_bytes(reinterpret_cast<unsigned char *>(VARDATA_ANY(key)), VARSIZE_ANY_EXHDR(key)));
    DirectFunctionCall2(pg_advisory_xact_lock_int4, Int32GetDatum(kClass), Int32GetDatum(hash));
}

void check_columns(Relation rel)
{
    int columns = RelationGetDescr(rel)->natts;
    if (columns != kEventColumns)
        elog(ERROR, "%s has %d columns, the library knows %d: ALTER EXTENSION outbox UPDATE", RelationGetRelationName(rel), columns, kEventColumns);
}

void insert_event(::Oid relation, Datum *values, bool *nulls)
{
    Relation rel = table_open(relation, RowExclusiveLock);
    check_columns(rel);
    EState *estate = CreateExecutorState();
    ResultRelInfo *info = makeNode(ResultRelInfo);
    InitResultRelInfo(info, rel, 0, nullptr, 0);  // 0: there is no range table
    info->ri_TrigDesc = nullptr;
    ExecOpenIndices(info, false);
    TupleTableSlot *slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(rel), &TTSOpsVirtual);
    ExecClearTuple(slot);
    memcpy(slot->tts_values, values, sizeof(Datum) * kEventColumns);
    memcpy(slot->tts_isnull, nulls, sizeof(bool) * kEventColumns);
    ExecStoreVirtualTuple(slot);
    // As ExecSimpleRelationInsert does it, but for the partition's constraint: it costs a tenth of the whole, and holds by
    // how the partition was chosen.
    if (RelationGetDescr(rel)->constr != nullptr)
        ExecConstraints(info, slot, estate);
    simple_table_tuple_insert(rel, slot);
    if (info->ri_NumIndices > 0)
        insert_index_tuples(info, slot, estate);
    ExecCloseIndices(info);
    ExecResetTupleTable(estate->es_tupleTable, false);
    FreeExecutorState(estate);
    table_close(rel, NoLock);
}

// ---- at commit ----------------------------------------------------------------------------------------------------------

static bool wake_pending, change_pending;

static void on_transaction_end(XactEvent event, void *)
{
    if (event == XACT_EVENT_COMMIT) {  // the transaction's rows are visible by now
        if (change_pending)
            shared::sinks_changed(MyDatabaseId);
        else if (wake_pending)
            shared::wake_relays(MyDatabaseId);
    }
    // After PREPARE nothing is visible yet, and COMMIT PREPARED may come from another session: relays find those by
    // their poll_interval.
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        wake_pending = change_pending = false;
}

static void register_once()
{
    static bool registered;
    if (registered)
        return;
    RegisterXactCallback(on_transaction_end, nullptr);
    registered = true;
}

void wake_at_commit()
{
    register_once();
    wake_pending = true;
}

void sinks_changed_at_commit()
{
    register_once();
    change_pending = true;
}

}  // namespace outbox::pg
