#include "pg/bgworker.hpp"

#include <algorithm>

#include "pg/guard.hpp"
#include "pg/postgres.hpp"

namespace outbox::pg {

// The whole struct is zeroed: what is not set must not be garbage.
static void describe(BackgroundWorker *worker, const char *function, const char *name, const char *type)
{
    memset(worker, 0, sizeof *worker);
    worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker->bgw_restart_time = BGW_NEVER_RESTART;
    strlcpy(worker->bgw_library_name, "outbox", sizeof worker->bgw_library_name);
    strlcpy(worker->bgw_function_name, function, sizeof worker->bgw_function_name);
    strlcpy(worker->bgw_name, name, BGW_MAXLEN);
    strlcpy(worker->bgw_type, type, BGW_MAXLEN);
}

void register_at_start(const char *function, const char *name, int restart_s)
{
    BackgroundWorker worker;
    describe(&worker, function, name, name);
    worker.bgw_restart_time = restart_s;
    RegisterBackgroundWorker(&worker);
}

Started start_worker(const char *function, const char *name, const char *type, std::uint64_t argument, WorkerHandle **handle)
{
    bool started = call([=] {
        BackgroundWorker worker;
        describe(&worker, function, name, type);
        worker.bgw_main_arg = UInt64GetDatum(argument);
        worker.bgw_notify_pid = MyProcPid;
        MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
        bool ok = RegisterDynamicBackgroundWorker(&worker, reinterpret_cast<BackgroundWorkerHandle **>(handle));
        MemoryContextSwitchTo(old);
        return ok;
    });
    return started ? Started::yes : Started::no_slot;
}

bool worker_ended(WorkerHandle *handle)
{
    return call([=] {
        pid_t pid;
        BgwHandleStatus status = GetBackgroundWorkerPid(reinterpret_cast<BackgroundWorkerHandle *>(handle), &pid);
        return status == BGWH_STOPPED || status == BGWH_POSTMASTER_DIED;
    });
}

void forget_worker(WorkerHandle *handle)
{
    if (handle != nullptr)
        pfree(handle);
}

std::size_t list_databases(Oid *to, std::size_t limit)
{
    return call([=] {
        std::size_t n = 0;
        Relation rel = table_open(DatabaseRelationId, AccessShareLock);
        TableScanDesc scan = table_beginscan_catalog(rel, 0, nullptr);
        HeapTuple tuple;
        while ((tuple = heap_getnext(scan, ForwardScanDirection)) != nullptr) {
            auto *database = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
            if (!database->datallowconn || database->datconnlimit == -2 /* DROP DATABASE was interrupted */)
                continue;
            // By age, more or less: a new one takes nobody's place.
            std::size_t at = std::min(n++, limit);
            if (at == limit && database->oid > to[--at])
                continue;
            for (; at > 0 && to[at - 1] > database->oid; at--)
                to[at] = to[at - 1];
            to[at] = database->oid;
        }
        table_endscan(scan);
        table_close(rel, AccessShareLock);
        return n;
    });
}

void end_worker(int code)
{
    proc_exit(code);
}

void *attach_segment(std::uint32_t handle)
{
    return call([=]() -> void * {
        dsm_segment *segment = dsm_attach(handle);
        return segment != nullptr ? dsm_segment_address(segment) : nullptr;
    });
}

std::uint64_t worker_argument(std::uintptr_t datum) { return DatumGetUInt64(datum); }

std::int64_t now() { return GetCurrentTimestamp(); }

}  // namespace outbox::pg
