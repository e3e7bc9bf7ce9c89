#include "state/shared.hpp"

#include "state/shared_memory.hpp"

namespace outbox::shared {

Shared *shared;

namespace {

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

bool mine() { return my_slot >= 0 && shared->slots[my_slot].owner == my_owner; }

}  // namespace

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
        database->listed = false;
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

bool alive(int pid) { return pid != 0 && BackendPidGetProc(pid) != nullptr; }

bool held(const Database *database) { return database != nullptr && alive(database->held_by); }

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

// A sink's lanes share it, and whoever had the slot before.
bool may_say(Line line)
{
    Locked lock(LW_EXCLUSIVE);
    if (!mine())
        return true;
    auto which = static_cast<int>(line);
    const Slot &me = shared->slots[my_slot];
    TimestampTz now = GetCurrentTimestamp();
    for (const auto &s : shared->slots)
        if (s.info.database == me.info.database && s.info.sink_id == me.info.sink_id && s.spoke_at[which] != 0 &&
            now - s.spoke_at[which] < kBetweenLines && now >= s.spoke_at[which])
            return false;
    shared->slots[my_slot].spoke_at[which] = now;
    return true;
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
        s.spoke_at[0] = s.spoke_at[1] = 0;
        s.owner = 0;
        s.procno = -1;
        if (static_cast<std::uint32_t>(free) >= pg_atomic_read_u32(&shared->used))
            pg_atomic_write_u32(&shared->used, static_cast<std::uint32_t>(free) + 1);
    }
    return without;
}

}  // namespace outbox::shared
