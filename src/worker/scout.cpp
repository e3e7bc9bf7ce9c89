// A scout looks into one database for the launcher, who cannot: is the extension there, which lanes should have a relay?
#include <cstdio>
#include <exception>
#include <string>

#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/shared.hpp"
#include "store/sinks.hpp"

namespace outbox::worker {

// What goes wrong here must not keep the sinks that are at home from being found.
static void adopt_after_upgrade()
{
    try {
        pg::Transaction transaction;
        pg::Extension extension = pg::lock_extension();
        if (!extension.present)
            return;
        std::size_t adopted = store::adopt_after_upgrade();
        const char *name = pg::my_database_name();
        transaction.commit();
        if (adopted == 0)
            return;
        char line[200];
        snprintf(line, sizeof line, "outbox: %zu sinks of database \"%s\" go on after pg_upgrade", adopted, name);
        pg::log(pg::Level::info, line);
    } catch (const std::exception &error) {
        pg::log(pg::Level::warning, (std::string("outbox: sinks could not be taken over after pg_upgrade: ") + error.what()).c_str());
    }
}

static void scout(pg::Oid database)
{
    static pg::Oid here;
    here = database;
    if (!shared::scout_attached(database))
        return;
    static bool succeeded;
    pg::before_exit([] { shared::scout_ended(here, succeeded); });
    pg::connect(database);

    adopt_after_upgrade();

    static shared::Wanted wanted[shared::kMaxRelays];
    int count = 0, without = 0;
    const char *name;
    {
        pg::Transaction transaction;
        name = pg::my_database_name();
        pg::Extension extension = pg::lock_extension();
        if (extension.busy)
            return;  // being created, dropped or altered: again in a moment
        if (extension.present)
            for (const store::LaneId &lane : store::wanted_lanes()) {
                if (count < shared::kMaxRelays)
                    wanted[count++] = {lane.sink_id, lane.lane};
                else
                    without++;
            }
        transaction.commit();
    }
    without += shared::set_wanted(database, wanted, count);
    if (without > 0) {
        char line[160];
        snprintf(line, sizeof line, "outbox: %d lanes of database \"%s\" have no relay: %d is the most for a server", without, name,
                 shared::kMaxRelays);
        pg::log(pg::Level::warning, line);
    }
    succeeded = true;
}

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_scout_main(std::uintptr_t argument)
{
    outbox::pg::boundary([=] { outbox::worker::scout(static_cast<outbox::pg::Oid>(outbox::pg::worker_argument(argument))); });
    outbox::pg::end_worker(0);
}
