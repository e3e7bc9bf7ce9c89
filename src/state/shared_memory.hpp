// The memory itself, for the files of this directory: shared.hpp has what others see. PostgreSQL regime.
#pragma once

#include "pg/postgres.hpp"
#include "state/shared.hpp"

namespace outbox::shared {

struct Slot {
    RelayInfo info;
    std::uint64_t owner;              // attach() counter of the process that owns the slot; 0: nobody
    int procno;                       // whose latch to set; -1: nobody's
    pg_atomic_uint32 sleeping;
    std::int64_t spoke_at[2];         // timestamptz: its last lines in the server log; see may_say()
    std::uint32_t runs;               // relays that came as far as their loop, whatever the slot was for
};

struct Database {
    Oid oid;                          // 0: free entry
    bool listed;                      // the launcher has a place for it among its databases
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
    int left_out;                     // databases that the launcher has no place for
    std::uint64_t owners;
    pg_atomic_uint32 used;            // slots [0, used) may be in use: bounds the writers' loop
    Slot slots[kMaxRelays];
    Database databases[kMaxDatabases];
};

extern Shared *shared;  // null: the library was not preloaded

// Nothing below an Exclusive or Shared scope ereports.
struct Locked {
    explicit Locked(LWLockMode mode) { LWLockAcquire(shared->lock, mode); }
    ~Locked() { LWLockRelease(shared->lock); }
};

Database *find(Oid oid);
Database *find_or_add(Oid oid);
void set_latch_of(int procno);
int my_procno();
bool alive(int pid);
bool held(const Database *database);  // by a backend that has not died meanwhile

}  // namespace outbox::shared
