#include "pg/session.hpp"

#include "pg/guard.hpp"
#include "pg/log_writer.hpp"
#include "pg/postgres.hpp"

namespace outbox::pg {

static void set(const char *name, const char *value) { SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE); }

static void start_signals()
{
    // die and the core handlers, before signals are unblocked: they serve barriers and config reloads in
    // every wait, so DROP DATABASE and reload never hang on us.
    pqsignal(SIGTERM, die);
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGINT, SIG_IGN);
    BackgroundWorkerUnblockSignals();
}

void connect(Oid database)
{
    start_signals();
    BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
    // A cluster's, database's or role's defaults must not break the loop.
    set("search_path", "pg_catalog, pg_temp");
    set("statement_timeout", "0");
    set("lock_timeout", "0");
    set("idle_in_transaction_session_timeout", "0");
    set("idle_session_timeout", "0");
    if (GetConfigOption("transaction_timeout", true, false) != nullptr)  // 17 and later
        set("transaction_timeout", "0");
    set("default_transaction_isolation", "read committed");
    set("default_transaction_read_only", "off");
    set("default_transaction_deferrable", "off");
    set("row_security", "off");
    set("session_replication_role", "origin");
    set("synchronous_commit", "local");  // off could repeat more than a batch, on could wait for a standby
    // Plans that cannot flip (a plan made while a table was small stays for ever in a worker).
    set("plan_cache_mode", "force_generic_plan");
    set("enable_seqscan", "off");
    set("enable_bitmapscan", "off");
    set("jit", "off");
    set("max_parallel_workers_per_gather", "0");
    set("extra_float_digits", "1");
    set("outbox.max_event_size", "1000000000");  // a scheduled event was checked when it was written
    for (const char *trace : {"outbox.traceparent", "outbox.tracestate", "outbox.baggage"})
        set(trace, "");  // a scheduled event has what was set when it was written
    set("DateStyle", "ISO");
    set("TimeZone", "UTC");
}

void connect_nowhere()
{
    start_signals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
}

Oid my_database() { return MyDatabaseId; }

const char *my_database_name()
{
    static char name[NAMEDATALEN];
    if (name[0] == '\0')
        call([] {
            char *found = get_database_name(MyDatabaseId);
            if (found != nullptr)
                strlcpy(name, found, NAMEDATALEN);
        });
    return name;
}

static void begin()
{
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    if (SPI_connect() != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect failed");
}

static void abort_now()
{
    AbortOutOfAnyTransaction();
    pgstat_report_activity(STATE_IDLE, nullptr);
}

Transaction::Transaction()
{
    try {
        call([] { begin(); });
    } catch (...) {
        call([] { abort_now(); });
        throw;
    }
}

void Transaction::commit()
{
    call([] {
        SPI_finish();
        CommitTransactionCommand();
    });
    open_ = false;
}

void commit_lazily()
{
    call([] { set_config_option("synchronous_commit", "off", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false); });
}

void abandon_transaction()
{
    call([] { abort_now(); });
}

Transaction::~Transaction()
{
    if (!open_)
        return;
    try {
        call([] { abort_now(); });
    } catch (...) {
        // An error while aborting: the session is beyond repair; the process ends and is started again.
        call([] { ereport(FATAL, errmsg("outbox: could not abort a transaction")); });
    }
}

Subtransaction::Subtransaction() : context_(CurrentMemoryContext), owner_(CurrentResourceOwner)
{
    auto *context = static_cast<MemoryContext>(context_);
    call([=] {
        BeginInternalSubTransaction(nullptr);
        MemoryContextSwitchTo(context);
    });
}

void Subtransaction::end(bool commit)
{
    auto *context = static_cast<MemoryContext>(context_);
    auto *owner = static_cast<ResourceOwner>(owner_);
    call([=] {
        if (commit)
            ReleaseCurrentSubTransaction();
        else
            RollbackAndReleaseCurrentSubTransaction();
        MemoryContextSwitchTo(context);
        CurrentResourceOwner = owner;
    });
    open_ = false;
}

void Subtransaction::commit() { end(true); }

Subtransaction::~Subtransaction()
{
    if (!open_)
        return;
    try {
        end(false);
    } catch (...) {
        // As with a Transaction: the session is beyond repair.
        call([] { ereport(FATAL, errmsg("outbox: could not abort a subtransaction")); });
    }
}

ReadView::ReadView()
{
    call([] { PushActiveSnapshot(GetTransactionSnapshot()); });
}

ReadView::~ReadView()
{
    // After an error the transaction's abort has popped it, or will. Without a guard: this raises no error, and out of a
    // destructor none could be thrown.
    if (ActiveSnapshotSet() && !IsAbortedTransactionBlockState())
        PopActiveSnapshot();
}

const char *snapshot_text()
{
    return call([]() -> const char * { return DatumGetCString(DirectFunctionCall1(pg_snapshot_out, DirectFunctionCall1(pg_current_snapshot, 0))); });
}

std::int64_t log_turn()
{
    return call([] { return current_turn(); });
}

static ::Oid our_extension;

void work_for(const Extension &extension) { our_extension = extension.oid; }

Extension lock_extension()
{
    return call([] {
        Extension e;
        e.oid = get_extension_oid("outbox", true);
        if (!OidIsValid(e.oid))
            return e;
        if (OidIsValid(our_extension) && e.oid != our_extension) {
            e.another = true;
            return e;
        }
        LOCKTAG tag;
        SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, e.oid, 0);
        if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL) {
            e.busy = true;
            return e;
        }
        AcceptInvalidationMessages();
        Relation rel = table_open(ExtensionRelationId, AccessShareLock);
        ScanKeyData key;
        ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(e.oid));
        SysScanDesc scan = systable_beginscan(rel, ExtensionOidIndexId, true, nullptr, 1, &key);
        HeapTuple tuple = systable_getnext(scan);
        if (HeapTupleIsValid(tuple)) {
            bool null = false;
            Datum version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &null);
            e.present = true;
            if (!null)
                strlcpy(e.version, TextDatumGetCString(version), sizeof e.version);
        }
        systable_endscan(scan);
        table_close(rel, AccessShareLock);
        return e;
    });
}

bool lock_table_now(const char *name)
{
    return call([=] { return ConditionalLockRelationOid(outbox_relation(name), RowExclusiveLock); });
}

bool only_one(Chore chore, bool wait)
{
    return call([=] {
        // SQL's functions use 1 and 2 as the last field.
        LOCKTAG tag;
        SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0x6f757462 /* "outb" */, static_cast<uint32>(chore), 3);
        return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
    });
}

bool recovery_in_progress() { return RecoveryInProgress(); }

void flush_commits(const std::uint64_t *xids, std::size_t count)
{
    call([=] {
        XLogRecPtr highest = InvalidXLogRecPtr;
        FullTransactionId next = ReadNextFullTransactionId();
        // What pg_xact does not have any more was frozen, hence on disk long ago; what it does not have yet is a
        // restored row's, with another cluster's id.
        LWLockAcquire(XactTruncationLock, LW_SHARED);
        for (std::size_t i = 0; i < count; i++) {
            FullTransactionId full = FullTransactionIdFromU64(xids[i]);
            TransactionId xid = XidFromFullTransactionId(full);
            if (!FullTransactionIdPrecedes(full, next) || U64FromFullTransactionId(next) - xids[i] > (UINT64CONST(1) << 31) ||
                TransactionIdPrecedes(xid, oldest_clog_xid()))
                continue;
            XLogRecPtr lsn = TransactionIdGetCommitLSN(xid);
            if (lsn > highest)
                highest = lsn;
        }
        LWLockRelease(XactTruncationLock);
        if (!XLogRecPtrIsInvalid(highest))
            XLogFlush(highest);
    });
}

std::uint64_t next_xid()
{
    return U64FromFullTransactionId(ReadNextFullTransactionId());
}

void make_commits_durable()
{
    // A commit of our own, with an xid, flushes everything before it. Flushing the insert pointer instead can
    // fail on an idle server ("xlog flush request is not satisfied").
    Transaction transaction;
    call([] {
        (void) GetTopTransactionId();
        ForceSyncCommit();
    });
    transaction.commit();
}

void report_activity(const char *what)
{
    call([=] {
        if (what != nullptr)
            pgstat_report_activity(STATE_RUNNING, what);
        else
            pgstat_report_activity(STATE_IDLE, nullptr);
    });
}

void name_session(const char *name)
{
    call([=] { set("application_name", name); });
}

void report_statistics()
{
    call([] { pgstat_report_stat(false); });
}

void log(Level level, const char *message)
{
    int elevel = level == Level::debug ? DEBUG1 : level == Level::info ? LOG : WARNING;
    call([=] { ereport(elevel, errmsg("%s", message), errhidestmt(true), errhidecontext(true)); });
}

}  // namespace outbox::pg
