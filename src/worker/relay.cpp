// The publish loop. Each pass is one transaction: read what is pending, claim the lane, publish, wait for the
// acknowledgements, record, commit.
#include "worker/relay.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "state/settings.hpp"
#include "worker/voice.hpp"

namespace outbox::worker {

using shared::State;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kStopGrace{2000};
constexpr std::chrono::minutes kFullLook{10};      // the safety net: the predicate in full, once in a while
constexpr seconds kLazyRecord{10};                 // a lane with nothing for it still moves its recorded position
constexpr std::int64_t kLazyEvents = 50'000;
constexpr std::size_t kCrowd = 16;                 // so many came during one pass: busy writers, whom many small batches would brake
constexpr std::int64_t kThinEvery = 1'000;         // batches
constexpr milliseconds kBriefPass{100};            // of parked events: another may follow it before live ones

void Relay::run()
{
    pg::make_commits_durable();
    for (;;) {
        try {
            Next next = step();
            if (next == Next::end)
                return;
            save_counts(false);
            voice().rest();
            sleep(next);
        } catch (const std::exception &error) {
            failed(error.what());
        }
    }
}

Relay::Next Relay::step()
{
    shared::beat();
    if (pg::termination_requested())
        settle_probe(kStopGrace);
    pg::serve_interrupts();
    if (!shared::still_wanted())
        return Next::end;
    notice_changes();
    if (Clock::now() < back_off_until_)
        return Next::wait;
    if (!loaded_) {
        switch (load()) {
        case Load::gone: return Next::end;
        case Load::busy: return Next::wait;
        case Load::done: break;
        }
    }
    if (!gone_.empty()) {
        disable();
        return Next::again;
    }
    if (lane_.lane == 0 && config_.error.empty())
        keep_house();
    if (!config_.halted.empty() || !config_.error.empty() || config_.paused || !settings::publish || !config_.gone.empty()) {
        enter(!config_.halted.empty()  ? State::halted
              : !config_.error.empty() ? State::disabled
              : config_.paused         ? State::paused
              : !settings::publish     ? State::off
                                       : State::disabled);
        if (!config_.error.empty())
            loaded_ = false;  // looked at again each time: ALTER EXTENSION UPDATE may have mended it
        return extension_gone() ? Next::again : Next::wait;
    }
    if (down_)
        return extension_gone() ? Next::again : probe_pass();
    send_parked();
    if (!gone_.empty())
        return Next::again;
    show_outage_of_parked();
    return publish_pass();
}

// Somebody changed something and may have seen to what is wrong: it is read again, and there is no more to wait for.
void Relay::notice_changes()
{
    if (pg::take_reload()) {
        loaded_ = false;
        if (!down_)  // an outage's pause may be what the endpoint asked for
            back_off_until_ = {};
    }
    if (std::uint64_t generation = shared::generation(); generation != generation_) {
        generation_ = generation;
        loaded_ = false;
        back_off_until_ = {};
        gone_.clear();  // it may be another url's answer
    }
}

// Twice: those of a busy key that were parked behind others while these were sent follow them, and then it is free. Not where live
// events have waited long enough.
void Relay::send_parked()
{
    Clock::time_point begin = Clock::now();
    std::size_t delivered = parking_.pass();
    if (delivered > 0 && Clock::now() - begin < kBriefPass)
        delivered += parking_.pass();
    shared::set_progress(progress_.position, static_cast<std::int64_t>(delivered));
    if (parking_.gone())
        gone_ = parking_.outage();
}

// One transaction. Returns with nothing in flight.
Relay::Next Relay::publish_pass()
{
    if (Clock::now() - full_look_at_ > kFullLook) {
        log_.restart();
        loaded_ = false;  // and the sink and what is parked: COMMIT PREPARED tells nobody what changed
        full_look_at_ = Clock::now();
    }
    pg::Transaction transaction;
    if (!extension_usable())
        return Next::wait;
    read();
    const store::Batch &batch = *batch_;
    if (batch.events.empty()) {
        skip_ahead(batch);
        transaction.commit();
        enter(State::idle);
        if (error_inherited_ && error_.empty())
            clear_error();
        return batch.more ? Next::again : Next::wait;
    }
    enter(State::running);
    busy_ = true;
    if (!store::claim(lane_, progress_, cap_.has_value())) {
        loaded_ = false;  // somebody else has the lane, or its progress is not what we know
        return Next::wait;
    }
    store::lock_records();
    arrange(batch);
    if (fix(batch, sendable_)) {
        transaction.commit();  // and then they may be sent
        std::swap(batch_, next_);
        next_read_ = true;
        return Next::again;
    }
    // From the first produce to the record a termination waits: what is acknowledged in time is recorded.
    pg::HoldInterrupts hold;
    if (!fault("not_durable"))
        make_durable(batch);
    fates_.assign(batch.events.size(), Fate::open);
    Publisher::Result result = publisher_->publish(
        std::span(batch.events).first(sendable_), fates_, [this](const core::Event &e) { return parking_.gated(publisher_->destination(e), e); },
        [this] { read_ahead(); }, together_);
    fates_.resize(batch.events.size(), Fate::open);
    count_delivered(batch);
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
        outage(*publisher_);
    else
        backoff_.reset();
    if (!gone_.empty())
        return Next::again;
    if (result == Publisher::Result::outage || result == Publisher::Result::stopped)
        return Next::wait;
    return !batch.more && batch.events.size() >= kCrowd ? Next::gather : Next::again;
}

// What is pending, unless that was read already.
void Relay::read()
{
    if (std::exchange(next_read_, false)) {
        std::swap(batch_, next_);
        batch_->follow(progress_);
        return;
    }
    log_.read(*batch_, progress_, cap_, limits(), ahead_);
}

// While a full batch is on its way the next one is read, and not sent: one batch at a time is in flight. What goes wrong here is no
// reason to send this batch again: the next pass reads by itself, and will say what is wrong. Not where a batch is as large as its
// memory may be: two of them would be, and reading is the least part of sending large events.
void Relay::read_ahead()
{
    if (!batch_->more || batch_->events.size() < limits().events || sendable_ < batch_->events.size())
        return;
    try {
        pg::Subtransaction part;
        log_.read(*next_, batch_->after, cap_, limits(), ahead_);
        part.commit();
        next_read_ = true;
    } catch (const std::exception &) {
        log_.restart();
    }
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
        delivered += std::exchange(uncounted_, 0);
        progress.published = batch.before.published + delivered;
        keep_requests(batch, done, progress);
        record(progress, delivered);
        if (result == Publisher::Result::complete)
            clear_error();
    }
    if (!publisher_->overtaking().empty()) {
        counts_.count(counts_.overtaking);
        error_ = publisher_->overtaking();
        shared::set_error(error_.c_str());
    }
    remember_ahead(batch, done);
    if (done < batch.events.size() && std::exchange(next_read_, false))
        log_.restart();  // what was read ahead comes after what is still open, and so do the turns that it found finished
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
            uncounted_ += ahead_.insert(batch.events[i].id).second;
}

// Nothing to send: the lane's position moves in memory, and on disk lazily. Where a change of lanes waits for this lane to
// come to its point, a late range is under way, there is more that was seen and not read (its commits must be on disk before it is
// sent, and a record is), or something was delivered and could not be recorded then, it is at once.
void Relay::skip_ahead(const store::Batch &batch)
{
    bool late_range = batch.after.late_seen || progress_.late_seen;
    bool arrives = cap_ && !arrived_ && !batch.more;
    bool due = batch.moved && (Clock::now() - recorded_at_ > kLazyRecord || batch.after.position - recorded_position_ > kLazyEvents);
    bool past_fence = !batch.more && recorded_xmin_ < log_.newest_fence() && batch.after.seen.xmin >= log_.newest_fence();
    if (batch.more || late_range || arrives || due || past_fence || batch.skipped > 0) {
        if (!store::claim(lane_, progress_, cap_.has_value())) {
            loaded_ = false;
            return;
        }
        store::Progress after = batch.after;
        if (!batch.more)
            after.requests.clear();  // none of their events is pending any more
        std::int64_t delivered = std::exchange(uncounted_, 0);
        after.published += delivered;
        store::record(lane_, after, 0);
        recorded(after, delivered);
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
    if (error_.empty() && !error_inherited_)
        return;
    error_.clear();
    error_inherited_ = false;
    shared::set_error(nullptr);
}

void Relay::record(const store::Progress &progress, std::int64_t delivered)
{
    store::record(lane_, progress, static_cast<std::int32_t>(delivered));
    recorded(progress, delivered);
}

void Relay::recorded(const store::Progress &progress, std::int64_t delivered)
{
    progress_ = progress;
    recorded_position_ = progress.position;
    recorded_xmin_ = progress.seen.xmin;
    recorded_at_ = Clock::now();
    shared::set_progress(progress.position, delivered);
    if (progress.batch % kThinEvery == 0)
        thinning_.step(lane_, progress.batch);
}

// ---- the process ----------------------------------------------------------------------------------------------------------

namespace {

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
    pg::before_exit([] { the_relay->save_counts(true), voice().rest(true); });  // the first of these to run: it is still a session of the database
    pg::at_exit([] {
        if (foreign_threads)
            pg::leave_at_once();
    });
    count_faults_here();
    the_relay->run();
}

}  // namespace

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_relay_main(std::uintptr_t argument)
{
    outbox::pg::boundary([=] { outbox::worker::run_relay(static_cast<int>(outbox::pg::worker_argument(argument))); });
    outbox::pg::end_worker(0);
}
