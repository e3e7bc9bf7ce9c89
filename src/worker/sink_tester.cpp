// The worker behind outbox.test_sink: one test, then it ends.
#include <cstdio>

#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "sink/sink.hpp"
#include "state/sink_test.hpp"
#include "store/sinks.hpp"

namespace outbox::worker {

static store::SinkConfig load(const char *sink)
{
    pg::Transaction transaction;
    store::SinkConfig config = store::load_sink(store::sink_id_of(sink));
    transaction.commit();
    return config;
}

static void test(SinkTest &test)
{
    store::SinkConfig config = load(test.sink);
    if (!config.error.empty()) {
        snprintf(test.error, sizeof test.error, "%s", config.error.c_str());
        return;
    }
    for (const sink::Check &check : sink::test(config.options, std::chrono::milliseconds(SinkTest::kLimitMs), pg::termination_requested)) {
        if (test.count == SinkTest::kRows)
            break;
        SinkTest::Row &row = test.rows[test.count++];
        snprintf(row.name, sizeof row.name, "%s", check.name.c_str());
        snprintf(row.detail, sizeof row.detail, "%s", check.detail.c_str());
        row.ok = check.ok;
    }
}

static void run(std::uint32_t handle)
{
    auto *shared = static_cast<SinkTest *>(pg::attach_segment(handle));
    if (shared == nullptr)
        return;  // whoever asked has gone
    pg::connect(shared->database);
    try {
        test(*shared);
    } catch (const std::exception &error) {
        snprintf(shared->error, sizeof shared->error, "%s", error.what());
    }
    shared->done = true;
}

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_sink_tester_main(std::uintptr_t argument)
{
    outbox::pg::boundary([=] { outbox::worker::run(static_cast<std::uint32_t>(outbox::pg::worker_argument(argument))); });
    outbox::pg::end_worker(0);
}
