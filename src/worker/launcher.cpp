// The launcher: one static worker without a database. It compares what should run (slots that scouts have filled) with
// what runs, and starts what is missing. Messages only shorten its sleep.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "state/shared.hpp"
#include "worker/workers.hpp"

namespace outbox::worker {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{500};
constexpr milliseconds kLongestPause{60'000};
constexpr milliseconds kHealthyRun{10'000};
constexpr milliseconds kLookAtDatabases{60'000};

// A process that the launcher starts again when it ends: at once after a healthy run, else with growing pauses. Healthy is who
// lived for kHealthyRun, and a relay that came as far as its loop: it does not end by itself there, but somebody terminated it,
// or dropped its sink.
struct Child {
    pg::WorkerHandle *handle = nullptr;
    Clock::time_point started, not_before;
    milliseconds pause{0};
    std::uint32_t runs = 0;  // of the relay's slot, when it was started

    bool running() const { return handle != nullptr; }
    void note_end(Clock::time_point now, bool ran = false)
    {
        if (handle == nullptr || !pg::worker_ended(handle))
            return;
        pg::forget_worker(handle);
        handle = nullptr;
        pause = ran || now - started > kHealthyRun ? milliseconds{0} : std::clamp(pause * 2, kFirstPause, kLongestPause);
        not_before = now + pause;
    }
};

struct Launcher {
    Child relays[shared::kMaxRelays];
    Child scout;
    shared::Oid scouting = 0;
    shared::Oid databases[shared::kMaxDatabases];
    Clock::time_point scout_not_before[shared::kMaxDatabases];
    milliseconds scout_pause[shared::kMaxDatabases];
    std::size_t database_count = 0;
    Clock::time_point databases_read_at;
    bool out_of_slots = false;
    bool saw_no_slot = false;
};

// There is room for so many: the others get no relays.
void report_databases(std::size_t left_out)
{
    auto before = static_cast<std::size_t>(shared::databases_left_out());
    if (left_out == before)
        return;
    shared::databases_left_out(static_cast<int>(left_out));
    char line[160];
    if (before == 0) {
        snprintf(line, sizeof line, "outbox: %zu databases get no relays: a server may have %d", left_out, shared::kMaxDatabases);
        pg::log(pg::Level::warning, line);
    } else if (left_out == 0) {
        pg::log(pg::Level::info, "outbox: there is room for every database again");
    }
}

void read_databases(Launcher &l)
{
    shared::Oid found[shared::kMaxDatabases];
    pg::Transaction transaction;
    std::size_t limit = fault("few_databases") ? 2 : shared::kMaxDatabases;
    std::size_t all = pg::list_databases(found, limit), n = std::min(all, limit);
    transaction.commit();
    report_databases(all - n);
    for (std::size_t i = 0; i < l.database_count; i++)
        if (std::find(found, found + n, l.databases[i]) == found + n)
            shared::forget_database(l.databases[i]);
    for (std::size_t i = 0; i < n; i++) {
        auto *old = std::find(l.databases, l.databases + l.database_count, found[i]);
        if (old == l.databases + l.database_count || *old != l.databases[i]) {
            l.scout_not_before[i] = Clock::time_point{};
            l.scout_pause[i] = milliseconds{0};
        }
        l.databases[i] = found[i];
    }
    l.database_count = n;
    l.databases_read_at = Clock::now();
}

bool start(Launcher &l, Child &child, const char *function, const char *name, const char *type, std::uint64_t argument)
{
    child.started = Clock::now();
    if (pg::start_worker(function, name, type, argument, &child.handle) == pg::Started::yes)
        return true;
    child.handle = nullptr;
    if (!l.scout.running())  // else its slot is free in a moment
        l.saw_no_slot = true;
    return false;
}

// One scout at a time: it looks into a database and fills the slots.
void run_scouts(Launcher &l)
{
    Clock::time_point now = Clock::now();
    if (l.scout.running()) {
        l.scout.note_end(now);
        if (l.scout.running())
            return;
        if (shared::scout_state(l.scouting) == shared::Scout::running) {  // it did not come to its end
            shared::scout_ended(l.scouting, false);
            for (std::size_t i = 0; i < l.database_count; i++)
                if (l.databases[i] == l.scouting) {
                    l.scout_pause[i] = std::clamp(l.scout_pause[i] * 2, kFirstPause, kLongestPause);
                    l.scout_not_before[i] = now + l.scout_pause[i];
                }
        }
    }
    for (std::size_t i = 0; i < l.database_count; i++) {
        if (shared::scout_state(l.databases[i]) != shared::Scout::needed || now < l.scout_not_before[i] ||
            shared::database_held(l.databases[i]))
            continue;
        l.scouting = l.databases[i];
        if (start(l, l.scout, "outbox_scout_main", "outbox scout", "outbox scout", l.scouting))
            shared::scout_started(l.scouting);
        return;
    }
}

void run_relays(Launcher &l)
{
    Clock::time_point now = Clock::now();
    for (int i = 0; i < shared::kMaxRelays; i++) {
        Child &child = l.relays[i];
        shared::RelayInfo relay = shared::relay(i);
        child.note_end(now, shared::runs(i) != child.runs);
        // A relay that an earlier launcher started has a pid and no handle.
        if (!relay.used || relay.pid != 0 || child.running() || now < child.not_before || shared::database_held(relay.database))
            continue;
        child.runs = shared::runs(i);
        char name[96];
        bool replay = relay.lane == shared::kReplay;
        if (replay)
            snprintf(name, sizeof name, "outbox replay %u/%d", relay.database, relay.sink_id);
        else
            snprintf(name, sizeof name, "outbox relay %u/%d/%d", relay.database, relay.sink_id, relay.lane);
        if (!start(l, child, replay ? "outbox_replay_main" : "outbox_relay_main", name, replay ? "outbox replay" : "outbox relay",
                   static_cast<std::uint64_t>(i)))
            return;
    }
}

void report_slots(Launcher &l)
{
    if (l.saw_no_slot == l.out_of_slots)
        return;
    l.out_of_slots = l.saw_no_slot;
    shared::no_worker_slot(l.out_of_slots);
    if (l.out_of_slots)
        pg::log(pg::Level::warning, "outbox: no background worker slot is free; raise max_worker_processes. Events wait until one is");
    else
        pg::log(pg::Level::info, "outbox: a background worker slot is free again");
}

// Until the next thing to do; a latch shortens it.
long sleep_ms(const Launcher &l)
{
    Clock::time_point now = Clock::now(), next = l.databases_read_at + kLookAtDatabases;
    if (l.out_of_slots)
        next = std::min(next, now + milliseconds{5000});
    for (int i = 0; i < shared::kMaxRelays; i++)
        if (l.relays[i].not_before > now && shared::relay(i).used)
            next = std::min(next, l.relays[i].not_before);
    for (std::size_t i = 0; i < l.database_count; i++)
        if (l.scout_not_before[i] > now)
            next = std::min(next, l.scout_not_before[i]);
    auto ms = std::chrono::duration_cast<milliseconds>(next - now).count() + 1;
    return std::clamp<long>(ms, 1, 60'000);
}

void run()
{
    static Launcher l;
    pg::connect_nowhere();
    pg::before_exit([] { shared::launcher_detach(); });
    shared::launcher_attach();
    for (;;) {
        pg::take_reload();
        l.saw_no_slot = false;
        read_databases(l);
        run_scouts(l);
        run_relays(l);
        report_slots(l);
        pg::report_activity(nullptr);
        pg::wait(pg::Wait::launcher, -1, sleep_ms(l));
    }
}

}  // namespace

void register_launcher() { pg::register_at_start("outbox_launcher_main", "outbox launcher", 1); }

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_launcher_main(std::uintptr_t)
{
    outbox::pg::boundary([] { outbox::worker::run(); });
}
