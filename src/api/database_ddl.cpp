// DROP, RENAME, SET TABLESPACE of a database and CREATE DATABASE ... TEMPLATE must not fail because relays are connected to
// it: they are told to end first, and are started again when the command's transaction is over (if the database is).
#include "api/hooks.hpp"
#include "pg/postgres.hpp"
#include "state/shared.hpp"

extern "C" {
#include "commands/defrem.h"
#include "nodes/parsenodes.h"
}

using namespace outbox;

namespace {

constexpr int kMaxHeld = 8;
constexpr int kWaitMs = 5000;  // longer than a relay's planned stop

::Oid held[kMaxHeld];
int held_count;
ProcessUtility_hook_type next_hook;

// The database that the command wants for itself; InvalidOid: none.
::Oid wanted_database(Node *statement)
{
    const char *name = nullptr;
    if (IsA(statement, DropdbStmt))
        name = reinterpret_cast<DropdbStmt *>(statement)->dbname;
    else if (IsA(statement, RenameStmt) && reinterpret_cast<RenameStmt *>(statement)->renameType == OBJECT_DATABASE)
        name = reinterpret_cast<RenameStmt *>(statement)->subname;
    else if (IsA(statement, AlterDatabaseStmt)) {
        auto *alter = reinterpret_cast<AlterDatabaseStmt *>(statement);
        ListCell *cell;
        foreach (cell, alter->options)
            if (strcmp(static_cast<DefElem *>(lfirst(cell))->defname, "tablespace") == 0)
                name = alter->dbname;
    } else if (IsA(statement, CreatedbStmt)) {
        name = "template1";
        ListCell *cell;
        foreach (cell, reinterpret_cast<CreatedbStmt *>(statement)->options) {
            auto *option = static_cast<DefElem *>(lfirst(cell));
            if (strcmp(option->defname, "template") == 0 && option->arg != nullptr)
                name = defGetString(option);
        }
    }
    if (name == nullptr)
        return InvalidOid;
    ::Oid database = get_database_oid(name, true);
    // Whoever could not run the command cannot stop the relays with it either.
    return OidIsValid(database) && pg::owns_database(database) ? database : InvalidOid;
}

void release(XactEvent event, void *)
{
    if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
        return;
    while (held_count > 0)
        shared::release_database(held[--held_count]);
}

void hold(::Oid database)
{
    static bool registered;
    if (!registered) {
        RegisterXactCallback(release, nullptr);
        registered = true;
    }
    if (held_count == kMaxHeld || !shared::hold_database(database))
        return;  // the command will say that the database is in use
    held[held_count++] = database;
    TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), kWaitMs);
    while (shared::workers_in(database) && GetCurrentTimestamp() < until) {
        (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

void on_utility(PlannedStmt *planned, const char *query, bool read_only_tree, ProcessUtilityContext context, ParamListInfo params,
                QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
    ::Oid database = wanted_database(planned->utilityStmt);
    if (OidIsValid(database) && shared::available())
        hold(database);
    if (next_hook != nullptr)
        next_hook(planned, query, read_only_tree, context, params, environment, dest, completion);
    else
        standard_ProcessUtility(planned, query, read_only_tree, context, params, environment, dest, completion);
}

}  // namespace

void outbox::api::install_hooks()
{
    next_hook = ProcessUtility_hook;
    ProcessUtility_hook = on_utility;
}
