// PostgreSQL's headers, in one place, and everything that differs between its versions.
// Included only below src/pg and, through pg/postgres.hpp, by the files of the PostgreSQL regime.
#pragma once

// PGDLLEXPORT is empty before PostgreSQL 16, and the library is built with -fvisibility=hidden.
#define PGDLLEXPORT __attribute__((visibility("default")))

extern "C" {
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "pgtime.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/slot.h"
#include "storage/buf.h"
#include "storage/bufmgr.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ps_status.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/xid8.h"
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#endif
// utils/float.h includes math.h, which is not for extern "C".
extern PGDLLIMPORT int extra_float_digits;
}

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "outbox supports PostgreSQL 15 to 18"
#endif

namespace outbox::pg {

// Names of the waits in pg_stat_activity; before 17 an extension has only PG_WAIT_EXTENSION.
enum class WaitName { idle, delivery, backing_off, launcher };

inline uint32 wait_event(WaitName name)
{
#if PG_VERSION_NUM >= 170000
    static uint32 events[4];
    static const char *const names[] = {"OutboxRelayIdle", "OutboxRelayDelivery", "OutboxRelayBackoff", "OutboxLauncher"};
    auto i = static_cast<int>(name);
    if (events[i] == 0)
        events[i] = WaitEventExtensionNew(names[i]);
    return events[i];
#else
    (void) name;
    return PG_WAIT_EXTENSION;
#endif
}

// Transactions before it are not in pg_xact any more. Under XactTruncationLock.
inline TransactionId oldest_clog_xid()
{
#if PG_VERSION_NUM >= 170000
    return TransamVariables->oldestClogXid;
#else
    return ShmemVariableCache->oldestClogXid;
#endif
}

inline void insert_index_tuples(ResultRelInfo *relation, TupleTableSlot *slot, EState *estate)
{
#if PG_VERSION_NUM >= 160000
    ExecInsertIndexTuples(relation, slot, estate, false, false, nullptr, NIL, false);
#else
    ExecInsertIndexTuples(relation, slot, estate, false, false, nullptr, NIL);
#endif
}

inline bool owns_database(Oid database)
{
#if PG_VERSION_NUM >= 160000
    return object_ownercheck(DatabaseRelationId, database, GetUserId());
#else
    return pg_database_ownercheck(database, GetUserId());
#endif
}

}  // namespace outbox::pg
