// A relay: one per sink and lane. Each pass of the publish loop is one transaction: read what is pending, claim the lane,
// publish, wait for the acknowledgements, record, commit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <unordered_set>

#include "core/backoff.hpp"
#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "state/settings.hpp"
#include "state/shared.hpp"
#include "store/lanes.hpp"
#include "store/log.hpp"
#include "store/scheduled.hpp"
#include "store/segments.hpp"
#include "store/sinks.hpp"
#include "worker/parking.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

namespace {

using shared::State;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kCloseLimit{250};
constexpr milliseconds kStopGrace{2000};
constexpr seconds kHousekeeping{5};
constexpr std::chrono::minutes kFullLook{10};      // the safety net: the predicate in full, once in a while
constexpr seconds kLazyRecord{10};                 // a lane with nothing for it still moves its recorded position
constexpr std::int64_t kLazyEvents = 50'000;
constexpr milliseconds kLookAtScheduled{60'000};   // a writer's wake-up makes it sooner
constexpr std::int64_t kScheduledBatch = 1'000;
constexpr std::int64_t kThinEvery = 1'000;         // batches

class Relay {
public:
    explicit Relay(const shared::Assignment &assignment) { lane_.sink_id = assignment.sink_id; lane_.lane = assignment.lane; }
    void run();
    bool close()  // false: a thread of librdkafka's is still there
    {
        if (publisher_ != nullptr)
            publisher_->close(kCloseLimit);
        parking_.close(kCloseLimit);
        return !Publisher::left_threads_behind();
    }

private:
    enum class Next { again, wait, end };

    enum class Load { done, busy, gone };
    Load load();
    Next step();
    Next publish_pass();
    Next probe_pass();
    void record_probe();
    void settle_probe(milliseconds grace);
    void hold_for_test();
    void make_durable(const store::Batch &batch);
    void skip_ahead(const store::Batch &batch);
    void recorded(const store::Progress &progress, std::int64_t delivered);
    std::size_t done_in_order(const store::Batch &batch);
    void remember_ahead(const store::Batch &batch, std::size_t done);
    void finish_batch(const store::Batch &batch, Publisher::Result result);
    void keep_house();
    void housekeeping();
    void failed(const char *what);
    void clear_error();
    void enter(State state);
    void outage(const std::string &why);
    void sleep(Next next);
    bool extension_usable();

    store::Lane lane_;
    store::Progress progress_;              // batch: the newest recorded; position and seen may be ahead of what is recorded
    std::optional<store::Cap> cap_;
    store::SinkConfig config_;
    store::Log log_;
    std::unique_ptr<Publisher> publisher_;
    Parking parking_;
    std::vector<Fate> fates_;
    std::unordered_set<std::int64_t> ahead_;  // delivered beyond a gap: left out when the batch is read again
    std::optional<store::Progress> probe_then_;  // the lane's progress once the probe is delivered
    std::int64_t recorded_position_ = 0;
    Clock::time_point recorded_at_ = Clock::now(), housekeeping_at_{}, scheduled_at_{}, scheduled_looked_at_{}, full_look_at_ = Clock::now(), back_off_until_{};
    core::Backoff backoff_{500, 30'000};
    std::minstd_rand random_{std::random_device{}()};
    std::uint64_t generation_ = 0;
    bool loaded_ = false, down_ = false, asleep_ = false;
    bool busy_ = false;                     // something was written since we looked at scheduled events
    bool arrived_ = false;                  // this lane has come to the cap, on disk
    State state_ = State::starting;
    std::string error_, house_error_;
};

// ---- the loop -------------------------------------------------------------------------------------------------------------

void Relay::run()
{
    pg::make_commits_durable();
    for (;;) {
        Next next = Next::wait;
        try {
            next = step();
        } catch (const std::exception &error) {
            failed(error.what());
        }
        if (next == Next::end)
            return;
        sleep(next);
    }
}

Relay::Next Relay::step()
{
    shared::beat();
    if (pg::termination_requested())
        settle_probe(kStopGrace);
    pg::serve_interrupts();
    if (pg::take_reload())
        loaded_ = false;
    if (!shared::still_wanted())
        return Next::end;
    if (!loaded_ || shared::generation() != generation_) {
        std::uint64_t generation = shared::generation();
        switch (load()) {
        case Load::gone: return Next::end;
        case Load::busy: return Next::wait;
        case Load::done: generation_ = generation;
        }
    }
    if (Clock::now() < back_off_until_)
        return Next::wait;
    if (lane_.lane == 0)
        keep_house();
    if (!config_.halted.empty() || !config_.error.empty() || config_.paused || !settings::publish) {
        enter(!config_.halted.empty()  ? State::halted
              : !config_.error.empty() ? State::disabled
              : config_.paused         ? State::paused
                                       : State::off);
        return Next::wait;
    }
    if (down_)
        return probe_pass();
    shared::set_progress(progress_.position, static_cast<std::int64_t>(parking_.pass()));
    return publish_pass();
}

// One transaction. Returns with nothing in flight.
Relay::Next Relay::publish_pass()
{
    if (Clock::now() - full_look_at_ > kFullLook) {
        log_.restart();
        full_look_at_ = Clock::now();
    }
    pg::Transaction transaction;
    if (!extension_usable())
        return Next::wait;
    store::Limits limits{static_cast<std::size_t>(config_.options.batch_size)};
    store::Batch batch = log_.read(progress_, cap_, limits, ahead_);
    if (batch.events.empty()) {
        skip_ahead(batch);
        transaction.commit();
        enter(State::idle);
        return batch.more ? Next::again : Next::wait;
    }
    enter(State::running);
    busy_ = true;
    if (!store::claim(lane_, progress_, cap_.has_value())) {
        loaded_ = false;  // somebody else has the lane, or its progress is not what we know
        return Next::wait;
    }
    // From the first produce to the record a termination waits: what is acknowledged in time is recorded.
    pg::HoldInterrupts hold;
    if (!fault("not_durable"))
        make_durable(batch);
    fates_.assign(batch.events.size(), Fate::open);
    Publisher::Result result = publisher_->publish(batch.events, fates_, [this](const core::Event &e) { return parking_.gated(publisher_->destination(e), e); });
    while (fault("after_acknowledgement") && !pg::termination_requested())
        hold_for_test();
    try {
        finish_batch(batch, result);
        transaction.commit();
    } catch (...) {
        remember_ahead(batch, 0);  // a record that keeps failing must not send the batch again and again
        throw;
    }
    pg::report_statistics();
    if (result == Publisher::Result::outage)
        outage(publisher_->error());
    else
        backoff_.reset();
    return result == Publisher::Result::complete ? Next::again : Next::wait;
}

// At a fault point: until the fault is taken away or the process is told to end.
void Relay::hold_for_test()
{
    pg::wait(pg::Wait::delivery, -1, 100);
    if (pg::take_reload())
        loaded_ = false;
}

// G1: the batch's transactions are on disk before they are sent, also those that committed asynchronously.
void Relay::make_durable(const store::Batch &batch)
{
    std::vector<std::uint64_t> xids = batch.xids(config_.floor);
    pg::flush_commits(xids.data(), xids.size());
}

// Records as much of the batch as was done without a gap; what could not be delivered of it is parked with it.
void Relay::finish_batch(const store::Batch &batch, Publisher::Result result)
{
    std::size_t done = done_in_order(batch);
    if (done > 0) {
        parking_.park(std::span(batch.events).first(done), fates_, *publisher_);
        auto delivered = std::count(fates_.begin(), fates_.begin() + static_cast<std::ptrdiff_t>(done), Fate::delivered);
        store::Progress progress = batch.after_first(done);
        progress.published = batch.before.published + delivered;
        store::record(lane_, progress, static_cast<std::int32_t>(delivered));
        recorded(progress, delivered);
        if (progress_.batch % kThinEvery == 0)
            store::thin_progress(lane_);
        if (result == Publisher::Result::complete)
            clear_error();
    }
    remember_ahead(batch, done);
}

std::size_t Relay::done_in_order(const store::Batch &batch)
{
    std::size_t done = 0;
    while (done < batch.events.size() && fates_[done] != Fate::open)
        done++;
    return done;
}

// After an outage in the middle of a batch, what was delivered beyond the first gap is not sent again by this process.
void Relay::remember_ahead(const store::Batch &batch, std::size_t done)
{
    if (done == batch.events.size() && !batch.more)  // else some may lie beyond this batch: late events went before them
        ahead_.clear();
    for (std::size_t i = done; i < batch.events.size(); i++)
        if (fates_[i] == Fate::delivered)
            ahead_.insert(batch.events[i].id);
}

// Nothing to send: the lane's position moves in memory, and on disk lazily. Where a change of lanes waits for this lane to
// come to its point, a late range is under way, or something was delivered and could not be recorded then, it is at once.
void Relay::skip_ahead(const store::Batch &batch)
{
    bool late_range = batch.after.late_seen || progress_.late_seen;
    bool arrives = cap_ && !arrived_ && !batch.more;
    bool due = batch.moved && (Clock::now() - recorded_at_ > kLazyRecord || batch.after.position - recorded_position_ > kLazyEvents);
    if (late_range || arrives || due || batch.skipped > 0) {
        if (!store::claim(lane_, progress_, cap_.has_value())) {
            loaded_ = false;
            return;
        }
        store::record(lane_, batch.after, 0);
        recorded(batch.after, 0);
        arrived_ = arrives;
        if (!batch.more)
            ahead_.clear();
        if (batch.skipped > 0 && !down_)
            clear_error();
        return;
    }
    std::int64_t newest = progress_.batch;
    progress_ = batch.after;
    progress_.batch = newest;
}

void Relay::clear_error()
{
    if (error_.empty())
        return;
    error_.clear();
    shared::set_error(nullptr);
}

void Relay::recorded(const store::Progress &progress, std::int64_t delivered)
{
    progress_ = progress;
    recorded_position_ = progress.position;
    recorded_at_ = Clock::now();
    shared::set_progress(progress.position, delivered);
}

// ---- while the sink is down -------------------------------------------------------------------------------------------------

void Relay::outage(const std::string &why)
{
    char line[400];
    if (!down_) {
        snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d is down: %s", config_.name.c_str(), lane_.lane, why.c_str());
        pg::log(pg::Level::warning, line);
    }
    down_ = true;
    error_ = why;
    shared::set_error(why.c_str());
    enter(State::backing_off);
    back_off_until_ = Clock::now() + milliseconds(backoff_.next_ms(random_()));
}

// No transaction is held: the first pending event stays in the producer with no time limit and is recorded when its report comes.
Relay::Next Relay::probe_pass()
{
    enter(State::backing_off);
    if (!publisher_->probing()) {
        pg::Transaction transaction;
        if (!extension_usable())
            return Next::wait;
        store::Batch batch = log_.read(progress_, cap_, store::Limits{1}, ahead_);
        if (batch.events.empty()) {
            skip_ahead(batch);
            transaction.commit();
            down_ = batch.more;
            return Next::wait;
        }
        make_durable(batch);
        probe_then_ = batch.after_first(1);
        publisher_->probe(batch.events[0]);
        transaction.commit();
    }
    switch (publisher_->probe_result()) {
    case Publisher::Probe::waiting:
        if (!publisher_->error().empty() && publisher_->error() != error_) {
            error_ = publisher_->error();
            shared::set_error(error_.c_str());
        }
        return Next::wait;
    case Publisher::Probe::failed:
        outage(publisher_->error());
        return Next::wait;
    case Publisher::Probe::suspect: break;
    case Publisher::Probe::delivered: record_probe();
    }
    down_ = false;
    backoff_.reset();
    char line[200];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d is up again", config_.name.c_str(), lane_.lane);
    pg::log(pg::Level::info, line);
    error_.clear();
    shared::set_error(nullptr);
    return Next::again;
}

// Gives the probe a moment to be acknowledged before its producer is given up.
void Relay::settle_probe(milliseconds grace)
{
    if (publisher_ == nullptr || !publisher_->probing())
        return;
    pg::HoldInterrupts hold;
    if (publisher_->end_probe(grace) == Publisher::Probe::delivered)
        record_probe();
}

void Relay::record_probe()
{
    pg::HoldInterrupts hold;
    pg::Transaction transaction;
    if (store::claim(lane_, progress_, cap_.has_value())) {
        store::record(lane_, *probe_then_, 1);
        recorded(*probe_then_, 1);
    } else {
        loaded_ = false;
    }
    transaction.commit();
}

// ---- around it --------------------------------------------------------------------------------------------------------------

// The sink's options, the lane and its progress, as they are now.
Relay::Load Relay::load()
{
    settle_probe(milliseconds(200));
    pg::Transaction transaction;
    pg::Extension extension = pg::lock_extension();
    if (extension.busy)
        return Load::busy;  // being created, dropped or altered
    store::SinkConfig config;
    if (extension.present)
        config = store::load_sink(lane_.sink_id);
    if (!config.exists || !store::load_lane(lane_, progress_, cap_)) {
        shared::give_up_slot();
        return Load::gone;
    }
    config.options.lane = lane_.lane;
    if (std::string_view(extension.version) != OUTBOX_VERSION)
        config.error = std::string("the library is of version " OUTBOX_VERSION " and the extension in this database of version ") +
                       extension.version + ": ALTER EXTENSION outbox UPDATE";
    parking_.load(lane_, config);
    transaction.commit();
    core::EventFilter filter;
    std::string error, hint;
    if (!filter.parse(config.options.events, error, hint))
        config.error = error;
    log_.configure(lane_, filter, config.floor);
    log_.restart();
    recorded_position_ = progress_.position;
    arrived_ = false;
    if (publisher_ == nullptr || publisher_->probing() || !(config.options == publisher_->options())) {
        if (publisher_ != nullptr && !publisher_->close(kCloseLimit))
            pg::log(pg::Level::warning, "outbox: an old producer is still busy with a name lookup");
        publisher_ = std::make_unique<Publisher>(config.options, config.wrapper);
        back_off_until_ = {};
    }
    if (!config.error.empty())
        shared::set_error(config.error.c_str());
    config_ = std::move(config);
    loaded_ = true;
    return Load::done;
}

bool Relay::extension_usable()
{
    pg::Extension extension = pg::lock_extension();
    if (!extension.present && !extension.busy)
        loaded_ = false;  // load() ends the relay
    return extension.present;
}

// What goes wrong here must not keep events from being sent.
void Relay::keep_house()
{
    try {
        housekeeping();
        house_error_.clear();
    } catch (const std::exception &error) {
        if (house_error_ != error.what())
            pg::log(pg::Level::warning, (std::string("outbox: keeping house failed: ") + error.what()).c_str());
        house_error_ = error.what();
        housekeeping_at_ = scheduled_looked_at_ = Clock::now();
        scheduled_at_ = Clock::now() + seconds(1);
    }
}

void Relay::housekeeping()
{
    if (cap_ || config_.options.lanes != lane_.lanes) {
        pg::Transaction transaction;
        if (!extension_usable())
            return;
        store::LaneChange change = store::change_lanes(lane_, config_.options.lanes);
        transaction.commit();
        if (change != store::LaneChange::none && (!cap_ || change == store::LaneChange::done))
            shared::sinks_changed(pg::my_database());
    }
    Clock::time_point now = Clock::now();
    if (now >= scheduled_at_ || (busy_ && now >= scheduled_looked_at_ + seconds(1))) {
        std::int64_t ms = store::move_due(kScheduledBatch);
        busy_ = false;
        scheduled_looked_at_ = now;
        scheduled_at_ = Clock::now() + (ms < 0 ? kLookAtScheduled : std::min<milliseconds>(milliseconds(ms), kLookAtScheduled));
    }
    if (Clock::now() - housekeeping_at_ < kHousekeeping)
        return;
    housekeeping_at_ = Clock::now();
    store::keep_segments(settings::retention_s);
}

// An error of PostgreSQL or our own. The transaction is aborted by now; what was delivered and not recorded comes twice.
void Relay::failed(const char *what)
{
    if (error_ != what) {
        char line[400];
        snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d: %s", config_.name.c_str(), lane_.lane, what);
        pg::log(pg::Level::warning, line);
    }
    error_ = what;
    shared::set_error(what);
    loaded_ = false;
    enter(State::backing_off);
    back_off_until_ = Clock::now() + milliseconds(backoff_.next_ms(random_()));
}

void Relay::enter(State state)
{
    if (state == state_)
        return;
    state_ = state;
    shared::set_state(state);
    pg::report_activity(state == State::running ? "publishing" : nullptr);
}

void Relay::sleep(Next next)
{
    if (next == Next::again)
        return;
    bool backing_off = Clock::now() < back_off_until_;
    Clock::time_point until = Clock::now() + milliseconds(settings::poll_interval_ms);
    if (backing_off)
        until = std::min(until, back_off_until_);
    else if (lane_.lane == 0)
        until = std::min(until, std::max(scheduled_at_, Clock::now() + milliseconds(20)));
    if (state_ == State::idle && !asleep_) {
        // Asleep first, then one more look: what was committed before the flag is seen by the look, what comes after
        // sets the latch.
        asleep_ = true;
        shared::sleeping(true);
        return;
    }
    bool probing = publisher_ != nullptr && publisher_->probing();
    std::optional<pg::HoldInterrupts> hold;
    if (probing)
        hold.emplace();  // step() waits for the probe's report before the process ends
    auto ms = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count() + 1;
    bool time_over = pg::wait(backing_off || probing ? pg::Wait::backing_off : pg::Wait::idle, probing ? publisher_->fd() : -1,
                              std::max<long>(static_cast<long>(ms), 1));
    if (time_over && asleep_)
        return;  // nobody woke us: the flag still stands, and the next look is the only one of this interval
    asleep_ = false;
    shared::sleeping(false);
    busy_ = true;
}

Relay *the_relay;
bool foreign_threads;

void run_relay(int slot)
{
    shared::Assignment assignment;
    if (!shared::attach(slot, assignment))
        return;
    pg::before_exit([] { shared::detach(); });
    pg::connect(assignment.database);
    the_relay = new Relay(assignment);  // never destroyed: FATAL does not unwind, and atexit is too late
    // The producer's threads are joined in bounded time; if one sits in a name lookup the process leaves without atexit
    // handlers, once shared memory has been let go.
    pg::before_exit([] { foreign_threads = !the_relay->close(); });
    pg::at_exit([] {
        if (foreign_threads)
            pg::leave_at_once();
    });
    the_relay->run();
}

}  // namespace

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_relay_main(std::uintptr_t argument)
{
    outbox::pg::boundary([=] { outbox::worker::run_relay(static_cast<int>(outbox::pg::worker_argument(argument))); });
    outbox::pg::end_worker(0);
}
