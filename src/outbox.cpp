// _PG_init: settings, shared memory, hooks, launcher. Nothing else.
#include "api/hooks.hpp"
#include "pg/postgres.hpp"
#include "state/settings.hpp"
#include "state/shared.hpp"
#include "worker/workers.hpp"

extern "C" {

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);
void _PG_init(void)
{
    outbox::settings::define();
    // Without preload the SQL functions work; nothing runs, and outbox.health says which line is missing.
    if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
        return;
    outbox::api::install_hooks();
    outbox::shared::request();
    outbox::worker::register_launcher();
}

}  // extern "C"
