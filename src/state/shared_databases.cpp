// What the launcher, its scouts and DDL on databases share.
#include "state/shared_memory.hpp"

namespace outbox::shared {

// ---- launcher -----------------------------------------------------------------------------------------------------------

void launcher_attach()
{
    Locked lock(LW_EXCLUSIVE);
    shared->launcher = my_procno();
    shared->launcher_pid = MyProcPid;
}

void launcher_detach()
{
    Locked lock(LW_EXCLUSIVE);
    if (shared->launcher_pid == MyProcPid) {
        shared->launcher = -1;
        shared->launcher_pid = 0;
    }
}

void wake_launcher()
{
    if (shared == nullptr)
        return;
    Locked lock(LW_SHARED);
    set_latch_of(shared->launcher);
}

int launcher_pid()
{
    if (shared == nullptr)
        return 0;
    Locked lock(LW_SHARED);
    return shared->launcher_pid;
}

Scout scout_state(Oid oid)
{
    Locked lock(LW_EXCLUSIVE);
    Database *database = find_or_add(oid);
    if (database == nullptr)
        return Scout::unneeded;
    database->listed = true;
    return database->scout_running ? Scout::running : database->scout_needed ? Scout::needed : Scout::unneeded;
}

void scout_started(Oid oid)
{
    Locked lock(LW_EXCLUSIVE);
    Database *database = find_or_add(oid);
    if (database != nullptr) {
        database->scout_running = true;
        database->scout_needed = false;
    }
}

bool scout_attached(Oid oid)
{
    Locked lock(LW_EXCLUSIVE);
    Database *database = find(oid);
    if (database == nullptr || held(database))
        return false;
    database->scout_pid = MyProcPid;
    return true;
}

void scout_ended(Oid oid, bool succeeded)
{
    {
        Locked lock(LW_EXCLUSIVE);
        Database *database = find(oid);
        if (database != nullptr) {
            database->scout_running = false;
            database->scout_pid = 0;
            if (!succeeded)
                database->scout_needed = true;
        }
    }
    wake_launcher();
}

void forget_database(Oid oid)
{
    Locked lock(LW_EXCLUSIVE);
    Database *database = find(oid);
    if (database != nullptr && !held(database))
        database->oid = 0;
    for (auto &s : shared->slots)
        if (s.info.used && s.info.database == oid)
            s.info.used = false;
}

RelayInfo relay(int slot)
{
    Locked lock(LW_SHARED);
    return shared->slots[slot].info;
}

std::uint32_t runs(int slot)
{
    Locked lock(LW_SHARED);
    return shared->slots[slot].runs;
}

void no_worker_slot(bool none)
{
    Locked lock(LW_EXCLUSIVE);
    shared->no_worker_slot = none;
}

bool no_worker_slot()
{
    Locked lock(LW_SHARED);
    return shared->no_worker_slot;
}

void databases_left_out(int count)
{
    Locked lock(LW_EXCLUSIVE);
    shared->left_out = count;
}

int databases_left_out()
{
    if (shared == nullptr)
        return 0;
    Locked lock(LW_SHARED);
    return shared->left_out;
}

bool left_out(Oid oid)
{
    if (shared == nullptr)
        return false;
    Locked lock(LW_SHARED);
    const Database *database = find(oid);
    return shared->left_out > 0 && (database == nullptr || !database->listed);
}

// ---- holds --------------------------------------------------------------------------------------------------------------

bool hold_database(Oid oid)
{
    Locked lock(LW_EXCLUSIVE);
    Database *database = find_or_add(oid);
    if (database == nullptr || (database->held_by != MyProcPid && held(database)))
        return false;
    database->held_by = MyProcPid;
    // The lock keeps the pids true: a process of ours clears its own under it before it ends.
    for (auto &s : shared->slots)
        if (s.info.database == oid && s.info.pid != 0)
            kill(s.info.pid, SIGTERM);
    if (database->scout_pid != 0)
        kill(database->scout_pid, SIGTERM);
    return true;
}

bool workers_in(Oid oid)
{
    // A process that has told its pid and is not connected yet is nobody that alive() knows.
    Locked lock(LW_SHARED);
    for (auto &s : shared->slots)
        if (s.info.database == oid && s.info.pid != 0)
            return true;
    Database *database = find(oid);
    return database != nullptr && database->scout_pid != 0;
}

void release_database(Oid oid)
{
    {
        Locked lock(LW_EXCLUSIVE);
        Database *database = find(oid);
        if (database != nullptr && database->held_by == MyProcPid)
            database->held_by = 0;
    }
    wake_launcher();
}

bool database_held(Oid oid)
{
    Locked lock(LW_SHARED);
    return held(find(oid));
}

}  // namespace outbox::shared
