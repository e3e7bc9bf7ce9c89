#include "state/shared.hpp"

#include "pg/postgres.hpp"

namespace outbox::shared {

namespace {

struct Slot {
    RelayInfo info;
    std::uint64_t owner;              // attach() counter of the process that owns the slot; 0: nobody
    int procno;                       // whose latch to set; -1: nobody's
    pg_atomic_uint32 sleeping;
    std::uint32_t runs;               // relays that came as far as their loop, whatever the slot was for
};

struct Database {
    Oid oid;                          // 0: free entry
    bool scout_needed;
    bool scout_running;
    int scout_pid;
    int held_by;                      // pid of a backend that drops, renames or copies it
    pg_atomic_uint64 generation;
};

struct Shared {
    LWLock *lock;
    int launcher;                     // its procno; -1: none
    int launcher_pid;
    bool no_worker_slot;
    std::uint64_t owners;
    pg_atomic_uint32 used;            // slots [0, used) may be in use: bounds the writers' loop
    Slot slots[kMaxRelays];
    Database databases[kMaxDatabases];
};

Shared *shared;
int my_slot = -1;
std::uint64_t my_owner;
shmem_request_hook_type next_request;
shmem_startup_hook_type next_startup;

void on_request()
{
    if (next_request != nullptr)
        next_request();
    RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)));
    RequestNamedLWLockTranche("outbox", 1);
}

void on_startup()
{
    if (next_startup != nullptr)
        next_startup();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    bool found = false;
    shared = static_cast<Shared *>(ShmemInitStruct("outbox", sizeof(Shared), &found));
    if (!found) {
        memset(static_cast<void *>(shared), 0, sizeof(Shared));
        shared->lock = &GetNamedLWLockTranche("outbox")->lock;
        pg_atomic_init_u32(&shared->used, 0);
        shared->launcher = -1;
        for (auto &slot : shared->slots) {
            slot.procno = -1;
            pg_atomic_init_u32(&slot.sleeping, 0);
        }
        for (auto &database : shared->databases)
            pg_atomic_init_u64(&database.generation, 0);
    }
    LWLockRelease(AddinShmemInitLock);
}

// Nothing below an Exclusive or Shared scope ereports.
struct Locked {
    explicit Locked(LWLockMode mode) { LWLockAcquire(shared->lock, mode); }
    ~Locked() { LWLockRelease(shared->lock); }
};

Database *find(Oid oid)
{
    for (auto &database : shared->databases)
        if (database.oid == oid)
            return &database;
    return nullptr;
}

Database *find_or_add(Oid oid)
{
    Database *database = find(oid);
    if (database != nullptr)
        return database;
    database = find(0);
    if (database != nullptr) {
        database->oid = oid;
        database->scout_needed = true;
        database->scout_running = false;
        database->scout_pid = 0;
        database->held_by = 0;
    }
    return database;
}

int my_procno() { return static_cast<int>(MyProc - ProcGlobal->allProcs); }

void set_latch_of(int procno)
{
    if (procno >= 0)
        SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}

bool mine() { return my_slot >= 0 && shared->slots[my_slot].owner == my_owner; }

bool alive(int pid) { return pid != 0 && BackendPidGetProc(pid) != nullptr; }

// By a backend that has not died meanwhile.
bool held(const Database *database) { return database != nullptr && alive(database->held_by); }

}  // namespace

const char *name(State state)
{
    switch (state) {
    case State::starting: return "starting";
    case State::idle: return "idle";
    case State::running: return "running";
    case State::backing_off: return "backing_off";
    case State::paused: return "paused";
    case State::off: return "off";
    case State::halted: return "halted";
    case State::disabled: return "disabled";
    case State::stopping: return "stopping";
    }
    return "unknown";
}

void request()
{
    next_request = shmem_request_hook;
    shmem_request_hook = on_request;
    next_startup = shmem_startup_hook;
    shmem_startup_hook = on_startup;
}

bool available() { return shared != nullptr; }

// ---- relays -----------------------------------------------------------------------------------------------------------

bool attach(int slot, Assignment &to)
{
    if (slot < 0 || slot >= kMaxRelays)
        return false;
    Locked lock(LW_EXCLUSIVE);
    Slot &s = shared->slots[slot];
    if (!s.info.used || alive(s.info.pid) || held(find(s.info.database)))
        return false;
    s.owner = my_owner = ++shared->owners;
    my_slot = slot;
    s.procno = my_procno();
    s.info.pid = MyProcPid;
    s.info.state = State::starting;
    pg_atomic_write_u32(&s.sleeping, 0);
    to.database = s.info.database;
    to.sink_id = s.info.sink_id;
    to.lane = s.info.lane;
    return true;
}

void detach()
{
    if (my_slot < 0)
        return;
    {
        Locked lock(LW_EXCLUSIVE);
        if (mine()) {
            Slot &s = shared->slots[my_slot];
            pg_atomic_write_u32(&s.sleeping, 0);
            s.procno = -1;
            s.owner = 0;
            s.info.pid = 0;
            s.info.state = State::starting;
        }
    }
    my_slot = -1;
    wake_launcher();
}

void give_up_slot()
{
    Locked lock(LW_EXCLUSIVE);
    if (mine())
        shared->slots[my_slot].info.used = false;
}

bool still_wanted()
{
    Locked lock(LW_SHARED);
    return mine() && shared->slots[my_slot].info.used;
}

void set_state(State state)
{
    Locked lock(LW_EXCLUSIVE);
    if (!mine())
        return;
    Slot &s = shared->slots[my_slot];
    if (s.info.state == State::starting)
        s.runs++;
    s.info.state = state;
}

void set_error(const char *text)
{
    Locked lock(LW_EXCLUSIVE);
    if (!mine())
        return;
    RelayInfo &info = shared->slots[my_slot].info;
    strlcpy(info.last_error, text != nullptr ? text : "", kErrorLength);
    info.last_error_at = text != nullptr ? GetCurrentTimestamp() : 0;
}

void set_progress(std::int64_t position, std::int64_t published_more)
{
    Locked lock(LW_EXCLUSIVE);
    if (!mine())
        return;
    RelayInfo &info = shared->slots[my_slot].info;
    info.position = position;
    if (published_more > 0) {
        info.published += published_more;
        info.last_published_at = GetCurrentTimestamp();
    }
}

void beat()
{
    Locked lock(LW_EXCLUSIVE);
    if (mine())
        shared->slots[my_slot].info.beat_at = GetCurrentTimestamp();
}

void sleeping(bool asleep)
{
    // Exchange is a full barrier: whoever commits after it sees the flag, and whatever was committed before it
    // is visible to the look that follows.
    if (mine())
        pg_atomic_exchange_u32(&shared->slots[my_slot].sleeping, asleep ? 1 : 0);
}

std::uint64_t generation()
{
    Locked lock(LW_SHARED);
    Database *database = find(MyDatabaseId);
    return database != nullptr ? pg_atomic_read_u64(&database->generation) : 0;
}

// ---- writers ------------------------------------------------------------------------------------------------------------

void wake_relays(Oid database)
{
    if (shared == nullptr)
        return;
    // No lock: a slot that changes hands meanwhile gets a latch set for nothing, or is awake anyway.
    pg_memory_barrier();
    std::uint32_t used = pg_atomic_read_u32(&shared->used);
    for (std::uint32_t i = 0; i < used; i++) {
        Slot &s = shared->slots[i];
        if (s.info.database != database || pg_atomic_read_u32(&s.sleeping) == 0)
            continue;
        if (pg_atomic_exchange_u32(&s.sleeping, 0) != 0)
            set_latch_of(s.procno);
    }
}

void sinks_changed(Oid oid)
{
    if (shared == nullptr)
        return;
    {
        Locked lock(LW_EXCLUSIVE);
        Database *database = find_or_add(oid);
        if (database != nullptr) {
            pg_atomic_fetch_add_u64(&database->generation, 1);
            database->scout_needed = true;
        }
        for (auto &s : shared->slots)
            if (s.info.used && s.info.database == oid)
                set_latch_of(s.procno);
    }
    wake_launcher();
}

// ---- scouts -------------------------------------------------------------------------------------------------------------

int set_wanted(Oid database, const Wanted *wanted, int count)
{
    Locked lock(LW_EXCLUSIVE);
    auto is_wanted = [=](const RelayInfo &info) {
        for (int i = 0; i < count; i++)
            if (wanted[i].sink_id == info.sink_id && wanted[i].lane == info.lane)
                return true;
        return false;
    };
    for (auto &s : shared->slots)
        if (s.info.used && s.info.database == database && !is_wanted(s.info)) {
            s.info.used = false;  // its relay, if there is one, sees that and ends
            set_latch_of(s.procno);
        }
    int without = 0;
    for (int i = 0; i < count; i++) {
        bool there = false;
        int free = -1;
        for (int k = kMaxRelays - 1; k >= 0; k--) {
            const RelayInfo &info = shared->slots[k].info;
            if (info.used && info.database == database && info.sink_id == wanted[i].sink_id && info.lane == wanted[i].lane)
                there = true;
            if (!info.used && !alive(info.pid))
                free = k;
        }
        if (there)
            continue;
        if (free < 0) {
            without++;
            continue;
        }
        Slot &s = shared->slots[free];
        s.info = RelayInfo{};
        s.info.used = true;
        s.info.database = database;
        s.info.sink_id = wanted[i].sink_id;
        s.info.lane = wanted[i].lane;
        s.owner = 0;
        s.procno = -1;
        if (static_cast<std::uint32_t>(free) >= pg_atomic_read_u32(&shared->used))
            pg_atomic_write_u32(&shared->used, static_cast<std::uint32_t>(free) + 1);
    }
    return without;
}

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
