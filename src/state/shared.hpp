// What the processes know of each other: one slot per relay, one entry per database, in shared memory.
// Plain data; no pointers, descriptors or std types. src/README.md has the states and who writes what.
#pragma once

#include <cstdint>

namespace outbox::shared {

using Oid = unsigned int;

inline constexpr int kMaxRelays = 128;     // all databases together
inline constexpr int kMaxDatabases = 256;
inline constexpr std::int32_t kReplay = -1;  // in place of a lane: the process that replays
inline constexpr int kErrorLength = 256;

enum class State : std::uint32_t { starting, idle, running, backing_off, paused, off, halted, disabled, stopping };
const char *name(State state);

// A relay's slot as a reader sees it.
struct RelayInfo {
    bool used = false;       // a relay is wanted here
    Oid database = 0;
    std::int32_t sink_id = 0;
    std::int32_t lane = 0;
    int pid = 0;             // 0: no process
    State state = State::starting;
    std::int64_t position = 0;
    std::int64_t published = 0;
    std::int64_t last_published_at = 0;  // timestamptz, 0: never
    std::int64_t last_error_at = 0;
    std::int64_t beat_at = 0;            // when the loop last came round
    char last_error[kErrorLength] = "";
};

// ---- set-up -------------------------------------------------------------------------------------------------------
void request();            // from _PG_init, while preloading: asks for the memory
bool available();          // false: the library was not preloaded

// ---- by relays ------------------------------------------------------------------------------------------------------
struct Assignment {
    Oid database = 0;
    std::int32_t sink_id = 0;
    std::int32_t lane = 0;
};
bool attach(int slot, Assignment &to);  // this process is the slot's relay from now on; false: not wanted any more, or held
void detach();                          // before exit: clears pid, if the slot is still ours
void set_state(State state);
void set_error(const char *text);       // nullptr: all is well again
void set_progress(std::int64_t position, std::int64_t published_more);
void beat();
enum class Line { change, trouble };
inline constexpr std::int64_t kBetweenLines = 60'000'000;  // microseconds
bool may_say(Line line);                // true at most once a minute for a sink, whichever of its relays asks
void sleeping(bool asleep);             // writers wake only a relay that sleeps; full barrier
void give_up_slot();                    // the lane is not there any more: the slot is free once we are gone
bool still_wanted();                    // false: the slot was taken from us, the process should end
std::uint64_t generation();             // counts changes of this database's sinks; a relay that sees it move reads them again

// ---- by writers and DDL -----------------------------------------------------------------------------------------------
void wake_relays(Oid database);         // at commit, after events became visible
void sinks_changed(Oid database);       // at commit of DDL on sinks: relays read again, launcher scouts again

// ---- by scouts ----------------------------------------------------------------------------------------------------------
struct Wanted {
    std::int32_t sink_id;
    std::int32_t lane;
};
// Makes the slots of `database` equal to `wanted`. Returns how many found no free slot.
int set_wanted(Oid database, const Wanted *wanted, int count);

// ---- by the launcher ----------------------------------------------------------------------------------------------------
void launcher_attach();
void launcher_detach();
void wake_launcher();
enum class Scout { unneeded, needed, running };
Scout scout_state(Oid database);                       // creates the entry at first sight (needed)
void scout_started(Oid database);
bool scout_attached(Oid database);                     // by the scout itself, at its start; false: held
void scout_ended(Oid database, bool succeeded);        // by the scout itself, at its end
void forget_database(Oid database);
RelayInfo relay(int slot);                             // a copy
std::uint32_t runs(int slot);                          // counts its relays that came as far as their loop
void no_worker_slot(bool none);                        // what health says
bool no_worker_slot();
int launcher_pid();
void databases_left_out(int count);                    // for which the launcher has no place
int databases_left_out();
bool left_out(Oid database);

// ---- DROP DATABASE and its like -----------------------------------------------------------------------------------------
// While a database is held no worker is started in it, and those that run are told to end. Held for the calling backend;
// let go at the latest when it ends. False: another backend holds it.
bool hold_database(Oid database);
bool workers_in(Oid database);          // some process of ours is connected to it, or about to be
void release_database(Oid database);
bool database_held(Oid database);

}  // namespace outbox::shared
