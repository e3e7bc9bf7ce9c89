// Slice by slice: read in one transaction, send in none, record in another one. What a crash meets in between is sent again.
#include "worker/replayer.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "pg/bgworker.hpp"
#include "pg/guard.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "state/settings.hpp"

namespace outbox::worker {

using shared::State;
using std::chrono::milliseconds;

constexpr milliseconds kCloseLimit{250};
constexpr int kSlicesPerSecond = 4;
constexpr std::size_t kSliceBytes = 4u << 20;

void Replayer::run()
{
    for (;;) {
        try {
            if (!step())
                return;
        } catch (const std::exception &error) {
            loaded_ = false;
            failed(error.what());
        }
        sleep();
    }
}

bool Replayer::step()
{
    shared::beat();
    pg::serve_interrupts();
    if (pg::take_reload())
        loaded_ = false;
    if (!shared::still_wanted())
        return false;
    waits_ = false;
    if (!loaded_ || shared::generation() != generation_) {
        std::uint64_t generation = shared::generation();
        if (generation != generation_)
            back_off_until_ = {};
        if (!load())
            return false;
        generation_ = generation;
    }
    if (Clock::now() < std::max(back_off_until_, next_slice_))
        return true;
    waits_ = !config_.halted.empty() || !config_.error.empty() || !config_.gone.empty() || config_.paused || !settings::publish;
    if (!waits_)
        return slice();
    shared::set_state(!config_.halted.empty() ? State::halted : !config_.error.empty() || !config_.gone.empty() ? State::disabled : config_.paused ? State::paused : State::off);
    loaded_ = false;  // looked at again each time: ALTER EXTENSION UPDATE and DROP EXTENSION tell nobody
    return true;
}

// The sink as it is now: its options decide where and how things are sent again.
bool Replayer::load()
{
    pg::Transaction transaction;
    pg::Extension extension = pg::lock_extension();
    if (extension.busy) {  // being created, dropped or altered
        back_off_until_ = Clock::now() + milliseconds(settings::poll_interval_ms);
        loaded_ = false;
        return true;
    }
    if (extension.present && std::string_view(extension.version) != OUTBOX_VERSION) {
        config_.error = "library and SQL are of different versions";
        shared::set_error(config_.error.c_str());
        loaded_ = true;
        return true;
    }
    store::SinkConfig config;
    if (extension.present)
        config = store::load_sink(sink_id_);
    if (!config.exists)
        return nothing_to_do();
    pg::work_for(extension);
    transaction.commit();
    config.options.lane = shared::kReplay;
    config.options.on_poison = core::OnPoison::skip;  // it holds nothing back: all of it was delivered before
    if (publisher_ == nullptr || !(config.options == publisher_->options())) {
        if (publisher_ != nullptr)
            publisher_->close(kCloseLimit);
        publisher_ = std::make_unique<Publisher>(config.options, [this](const std::string &complaint) { return worth_waiting(complaint); });
        back_off_until_ = {};
    }
    if (!config.error.empty())
        shared::set_error(config.error.c_str());
    else if (!config_.error.empty())
        shared::set_error(nullptr);
    pg::name_session(("outbox " + config.name + "/replay").c_str());
    config_ = std::move(config);
    loaded_ = true;
    return true;
}

// A replay may have come since we looked, and a scout have seen that the slot is in use: another one looks, now that it is not.
bool Replayer::nothing_to_do()
{
    shared::give_up_slot();
    shared::sinks_changed(pg::my_database());
    return false;
}

std::size_t Replayer::most() const
{
    return static_cast<std::size_t>(std::clamp(settings::replay_rate / kSlicesPerSecond, 1, config_.options.batch_size));
}

bool Replayer::slice()
{
    Clock::time_point begin = Clock::now();
    store::Replay replay;
    {
        pg::Transaction transaction;
        if (!pg::lock_extension().present) {
            loaded_ = false;
            return true;
        }
        if (!store::next_replay(sink_id_, replay))
            return nothing_to_do();
        store::read_replay(replay, sink_id_, config_, {most(), kSliceBytes}, batch_);
        transaction.commit();
    }
    if (error_.empty())
        shared::set_state(State::running);
    fates_.assign(batch_.events.size(), Fate::open);
    Publisher::Result result = Publisher::Result::complete;
    {
        pg::HoldInterrupts hold;  // to the record: what is acknowledged in time is recorded
        if (!batch_.events.empty())
            result = publisher_->publish(batch_.events, fates_, [](const core::Event &) { return false; });
        while (fault("after_replayed_slice") && !pg::termination_requested()) {
            pg::wait(pg::Wait::delivery, -1, 100);
            pg::take_reload();
        }
        record(replay);
    }
    next_slice_ = begin + std::chrono::microseconds(1'000'000 * static_cast<std::int64_t>(batch_.events.size()) / settings::replay_rate);
    if (result == Publisher::Result::outage)
        down();
    else if (result != Publisher::Result::stopped)
        well();
    return true;
}

// As much as was done without a gap. Nothing is parked: it was delivered before, and what the sink does not take now is skipped.
store::Slice Replayer::outcome(const store::Replay &replay)
{
    store::Slice slice;
    std::size_t done = 0;
    for (; done < fates_.size() && fates_[done] != Fate::open; done++) {
        if (fates_[done] == Fate::delivered) {
            slice.sent++;
            continue;
        }
        slice.skipped++;
        if (slice.error.empty() && fates_[done] != Fate::gated)
            slice.error = "the event with id " + std::to_string(batch_.events[done].id) + " was skipped: " + publisher_->reason(done);
    }
    slice.position = done == fates_.size() ? batch_.after.position : done > 0 ? batch_.events[done - 1].id : replay.position;
    return slice;
}

void Replayer::record(const store::Replay &replay)
{
    store::Slice slice = outcome(replay);
    if (slice.position == replay.position && replay.position < replay.last_id)
        return;
    pg::Transaction transaction;
    if (!pg::lock_extension().present) {
        loaded_ = false;
        return;
    }
    bool done = store::record_replay(replay, slice);
    transaction.commit();
    shared::set_progress(slice.position, slice.sent);
    pg::report_statistics();
    if (!done)
        return;
    char line[200];
    snprintf(line, sizeof line, "outbox: replay %lld of sink \"%s\" is done", static_cast<long long>(replay.id), config_.name.c_str());
    pg::log(pg::Level::info, line);
}

// The sink is down, or an error of PostgreSQL's. Nothing is counted: the same slice comes again.
void Replayer::failed(const std::string &why)
{
    if (error_ != why) {
        char line[400];
        snprintf(line, sizeof line, "outbox: the replay of sink \"%s\" waits: %s", config_.name.c_str(), why.c_str());
        pg::log(pg::Level::warning, line);
    }
    error_ = why;
    shared::set_error(why.c_str());
    shared::set_state(State::backing_off);
    back_off_until_ = Clock::now() + milliseconds(backoff_.next_ms(random_()));
}

// As a relay's.
bool Replayer::worth_waiting(const std::string &complaint)
{
    if (complaint.empty())
        return true;
    complains_ = true;
    shared::set_error(complaint.c_str());
    return shared::still_wanted() && shared::generation() == generation_;
}

void Replayer::down()
{
    failed(publisher_->error());
    back_off_until_ = std::max(back_off_until_, publisher_->not_before());
    if (!publisher_->gone())
        return;
    pg::Transaction transaction;
    if (pg::lock_extension().present)
        store::disable(sink_id_, config_.options.http.url, error_);
    transaction.commit();
    loaded_ = false;
    shared::sinks_changed(pg::my_database());  // for the relays
}

void Replayer::well()
{
    backoff_.reset();
    if (std::exchange(complains_, false) || !error_.empty())
        shared::set_error(nullptr);
    error_.clear();
}

void Replayer::sleep()
{
    Clock::time_point until = waits_ ? Clock::now() + milliseconds(settings::poll_interval_ms) : std::max(next_slice_, back_off_until_);
    auto ms = std::chrono::duration_cast<milliseconds>(until - Clock::now() + milliseconds(1)).count();
    if (ms > 0)
        pg::wait(Clock::now() < back_off_until_ ? pg::Wait::backing_off : pg::Wait::idle, -1, static_cast<long>(std::min<std::int64_t>(ms, 60'000)));
}

bool Replayer::close()
{
    if (publisher_ != nullptr)
        publisher_->close(kCloseLimit);
    return !Publisher::left_threads_behind();
}

// ---- the process ----------------------------------------------------------------------------------------------------------

namespace {

Replayer *the_replayer;
bool foreign_threads;

// As a relay's: see there.
void run_replay(int slot)
{
    shared::Assignment assignment;
    if (!shared::attach(slot, assignment))
        return;
    pg::before_exit([] { shared::detach(); });
    pg::connect(assignment.database);
    the_replayer = new Replayer(assignment.sink_id);
    pg::before_exit([] { foreign_threads = !the_replayer->close(); });
    pg::at_exit([] {
        if (foreign_threads)
            pg::leave_at_once();
    });
    the_replayer->run();
}

}  // namespace

}  // namespace outbox::worker

extern "C" __attribute__((visibility("default"))) void outbox_replay_main(std::uintptr_t argument)
{
    outbox::pg::boundary([=] { outbox::worker::run_replay(static_cast<int>(outbox::pg::worker_argument(argument))); });
    outbox::pg::end_worker(0);
}
