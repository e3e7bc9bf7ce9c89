// Sinks from SQL: what happens at their DDL, pause, resume, forget, test_sink.
// PostgreSQL regime at the edge, C++ inside the boundaries.
#include <string>

#include "pg/bgworker.hpp"
#include "pg/catalog.hpp"
#include "pg/guard.hpp"
#include "pg/log_writer.hpp"
#include "pg/spi.hpp"
#include "state/shared.hpp"
#include "state/sink_test.hpp"
#include "store/sinks.hpp"

extern "C" {
#include "commands/defrem.h"
#include "nodes/parsenodes.h"
}

using namespace outbox;

extern "C" {

// ---- DDL on sinks ---------------------------------------------------------------------------------------------------------

static bool is_sink(const char *server)
{
    return pg::boundary([=] {
        pg::Spi spi;
        return pg::run_once("SELECT 1 FROM outbox.servers WHERE name = $1", {pg::Param::text(server)}).size() > 0;
    });
}

static void warn_without_brokers(const char *sink)
{
    bool none = pg::boundary([=] {
        pg::Spi spi;
        return pg::run_once("SELECT 1 FROM outbox.servers v JOIN pg_catalog.pg_foreign_server s ON s.oid = v.server_oid WHERE v.name = $1 AND v.wrapper = 'outbox_kafka'"
                            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_options_to_table(s.srvoptions) o WHERE o.option_value <> ''"
                            "   AND pg_catalog.replace(o.option_name, '_', '.') IN ('bootstrap.servers', 'metadata.broker.list'))",
                            {pg::Param::text(sink)}).size() > 0;
    });
    if (none)
        ereport(WARNING, errmsg("sink \"%s\" has no option \"bootstrap_servers\": nothing is sent", sink),
                errhint("ALTER SERVER %s OPTIONS (ADD bootstrap_servers 'host:9092');", quote_identifier(sink)));
}

static void warn_without_worker()
{
    if (!shared::available())
        ereport(WARNING, errmsg("outbox is not preloaded: events are stored and nothing is sent"),
                errhint("Add the line  shared_preload_libraries = 'outbox'  to postgresql.conf and restart the server."));
    else if (shared::no_worker_slot())
        ereport(WARNING, errmsg("no background worker slot is left for outbox: events are stored and nothing is sent"),
                errhint("Raise max_worker_processes in postgresql.conf and restart the server."));
}

static void on_drop_start(Node *node)
{
    if (!IsA(node, DropStmt))
        return;
    auto *drop = reinterpret_cast<DropStmt *>(node);
    if (drop->removeType != OBJECT_FOREIGN_SERVER || drop->behavior == DROP_CASCADE)
        return;
    ListCell *cell;
    foreach (cell, drop->objects) {
        const char *name = strVal(lfirst(cell));
        pg::boundary([=] {
            pg::Spi spi;
            if (pg::run_once("SELECT 1 FROM outbox.servers WHERE name = $1", {pg::Param::text(name)}).size() > 0)
                store::check_droppable(name);
        });
    }
}

// A sink of a copy must not come home without outbox.resume, which settles what the copy brought along.
static void refuse_home(AlterForeignServerStmt *alter)
{
    ListCell *cell;
    foreach (cell, alter->options) {
        if (strcmp(static_cast<DefElem *>(lfirst(cell))->defname, "home") != 0)
            continue;
        if (is_sink(alter->servername))
            ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("option \"home\" is set by outbox itself"),
                    errhint("SELECT outbox.resume(%s) lets a sink publish here.", quote_literal_cstr(alter->servername)));
    }
}

static void on_ddl_end(Node *node)
{
    if (node != nullptr && IsA(node, AlterForeignServerStmt))
        refuse_home(reinterpret_cast<AlterForeignServerStmt *>(node));
    const char *from = nullptr, *to = nullptr;
    if (node != nullptr && IsA(node, RenameStmt)) {
        auto *rename = reinterpret_cast<RenameStmt *>(node);
        if (rename->renameType == OBJECT_FOREIGN_SERVER) {
            from = strVal(reinterpret_cast<Node *>(rename->object));
            to = rename->newname;
        }
    }
    pg::boundary([=] {
        pg::Spi spi;
        if (from != nullptr)
            store::rename_sink(from, to);
        store::reconcile();
    });
    pg::sinks_changed_at_commit();
    if (node != nullptr && IsA(node, AlterForeignServerStmt))
        warn_without_brokers(reinterpret_cast<AlterForeignServerStmt *>(node)->servername);
    if (node != nullptr && IsA(node, CreateForeignServerStmt)) {
        const char *server = reinterpret_cast<CreateForeignServerStmt *>(node)->servername;
        warn_without_brokers(server);
        if (is_sink(server))
            warn_without_worker();
    }
}

static void on_sql_drop()
{
    bool changed = pg::boundary([] {
        pg::Spi spi;
        bool gone = store::dropped_sinks_exist();
        if (gone)
            store::reconcile();
        return gone;
    });
    if (changed)
        pg::sinks_changed_at_commit();
}

PG_FUNCTION_INFO_V1(outbox_on_sink_ddl);
PGDLLEXPORT Datum outbox_on_sink_ddl(PG_FUNCTION_ARGS)
{
    if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
        ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("outbox.on_sink_ddl is an event trigger function"));
    auto *trigger = reinterpret_cast<EventTriggerData *>(fcinfo->context);
    if (strcmp(trigger->event, "ddl_command_start") == 0)
        on_drop_start(trigger->parsetree);
    else if (strcmp(trigger->event, "sql_drop") == 0)
        on_sql_drop();
    else
        on_ddl_end(trigger->parsetree);
    PG_RETURN_NULL();
}

// ---- by hand --------------------------------------------------------------------------------------------------------------

static const char *sink_argument(FunctionCallInfo fcinfo)
{
    if (PG_ARGISNULL(0))
        ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"sink\" must not be NULL"), errhint("outbox.lag lists the sinks."));
    return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

static void on_sink(FunctionCallInfo fcinfo, void (*action)(std::string_view))
{
    const char *sink = sink_argument(fcinfo);
    pg::boundary([=] {
        pg::Spi spi;
        action(sink);
    });
    pg::sinks_changed_at_commit();
}

PG_FUNCTION_INFO_V1(outbox_pause);
PGDLLEXPORT Datum outbox_pause(PG_FUNCTION_ARGS)
{
    on_sink(fcinfo, store::pause);
    PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(outbox_resume);
PGDLLEXPORT Datum outbox_resume(PG_FUNCTION_ARGS)
{
    on_sink(fcinfo, store::resume);
    PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(outbox_forget);
PGDLLEXPORT Datum outbox_forget(PG_FUNCTION_ARGS)
{
    on_sink(fcinfo, store::forget);
    PG_RETURN_VOID();
}

// Starts a worker that does the test and waits for it: the client library starts threads, and those have no place in a
// client's backend.
static void test_in_worker(SinkTest *test, dsm_handle segment)
{
    pg::WorkerHandle *worker = nullptr;
    pg::WorkerHandle **out = &worker;
    bool started = pg::boundary([=] {
        pg::Spi spi;
        store::sink_id_of(test->sink);
        return pg::start_worker("outbox_sink_tester_main", "outbox sink test", "outbox sink test", segment, out) == pg::Started::yes;
    });
    if (!started)
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("no background worker slot is free for the test"),
                errhint("Raise max_worker_processes in postgresql.conf and restart the server."));
    auto *handle = reinterpret_cast<BackgroundWorkerHandle *>(worker);
    for (pid_t pid; GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED;) {
        if (QueryCancelPending || ProcDiePending)
            TerminateBackgroundWorker(handle);
        CHECK_FOR_INTERRUPTS();
        (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100, PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
    }
    if (!test->done)
        ereport(ERROR, errmsg("the test of sink \"%s\" was broken off", test->sink), errhint("The server log has more."));
    if (test->error[0] != '\0')
        ereport(ERROR, errmsg("sink \"%s\" cannot be tested: %s", test->sink, test->error),
                errhint("The test runs in a session of its own: CREATE SERVER must be committed first."));
}

PG_FUNCTION_INFO_V1(outbox_test_sink);
PGDLLEXPORT Datum outbox_test_sink(PG_FUNCTION_ARGS)
{
    const char *sink = sink_argument(fcinfo);
    InitMaterializedSRF(fcinfo, 0);
    auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
    dsm_segment *segment = dsm_create(sizeof(SinkTest), 0);
    auto *test = static_cast<SinkTest *>(dsm_segment_address(segment));
    memset(test, 0, sizeof *test);
    test->database = MyDatabaseId;
    strlcpy(test->sink, pg_server_to_any(sink, static_cast<int>(strlen(sink)), PG_UTF8), sizeof test->sink);
    test_in_worker(test, dsm_segment_handle(segment));
    for (int i = 0; i < test->count; i++) {
        const SinkTest::Row &row = test->rows[i];
        Datum values[3] = {CStringGetTextDatum(row.name), BoolGetDatum(row.ok), CStringGetTextDatum(row.detail)};
        bool nulls[3] = {};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    dsm_detach(segment);
    return static_cast<Datum>(0);
}

}  // extern "C"
