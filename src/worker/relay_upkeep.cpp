// What else keeps a relay going: its sink's options, the extension, keeping house, errors, sleep.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/settings.hpp"
#include "store/inbox.hpp"
#include "store/scheduled.hpp"
#include "store/segments.hpp"
#include "worker/relay.hpp"
#include "worker/voice.hpp"

namespace outbox::worker {

using shared::State;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kCloseLimit{250};
// A segment spans a twelfth of the retention; looking more often than this finds nothing.
seconds between_housekeepings() { return seconds(std::clamp(settings::retention_s / 100, 5, 60)); }
constexpr milliseconds kLookAtScheduled{60'000};   // a writer's wake-up makes it sooner
constexpr std::int64_t kScheduledBatch = 1'000;
constexpr std::int64_t kClaims = 1'000;            // so many at a time, so that events do not wait for it
constexpr milliseconds kBetweenClaims{50};
// Between two batches of a relay that follows busy writers. Each batch is a commit of ours, and a request and its answer for the broker.
constexpr milliseconds kGather{5};

// The sink's options, the lane and its progress, as they are now.
Relay::Load Relay::load()
{
    settle_probe(milliseconds(200));
    pg::Transaction transaction;
    pg::Extension extension = pg::lock_extension();
    if (extension.busy)
        return Load::busy;  // being created, dropped or altered
    if (extension.present && std::string_view(extension.version) != OUTBOX_VERSION) {
        idle_until_updated(extension.version);
        return Load::done;
    }
    store::SinkConfig config;
    if (extension.present)
        config = store::load_sink(lane_.sink_id);
    if (!config.exists || !store::load_lane(lane_, progress_, cap_)) {
        // An extension that was dropped and created again is another one, with another log: nothing that is remembered here
        // holds there, and a scout gives its lanes slots of their own.
        shared::give_up_slot();
        if (extension.another)
            shared::sinks_changed(pg::my_database());
        return Load::gone;
    }
    pg::work_for(extension);
    config.options.lane = lane_.lane;
    parking_.load(lane_, config);
    transaction.commit();
    core::EventFilter filter;
    std::string error, hint;
    if (!filter.parse(config.options.events, error, hint))
        config.error = error;
    log_.configure(lane_, filter, config.floor);
    log_.restart();
    next_read_ = false;
    recorded_position_ = progress_.position;
    recorded_xmin_ = progress_.seen.xmin;
    arrived_ = false;
    if (publisher_ == nullptr || publisher_->probing() || !(config.options == publisher_->options())) {
        if (publisher_ != nullptr && !publisher_->close(kCloseLimit))
            pg::log(pg::Level::warning, "outbox: an old producer is still busy with a name lookup");
        if (publisher_ != nullptr && !(config.options == publisher_->options()))
            clear_error();  // what was wrong with the old options
        publisher_ = std::make_unique<Publisher>(config.options, [this](const std::string &complaint) { return worth_waiting(complaint); });
        back_off_until_ = {};
    }
    if (!config.gone.empty()) {
        error_ = config.gone;
        shared::set_error(error_.c_str());
    } else if (!config_.gone.empty()) {
        clear_error();
    }
    if (!config.error.empty()) {
        shared::set_error(config.error.c_str());
        if (config.error != config_.error)
            pg::log(pg::Level::warning, ("outbox: sink \"" + config.name + "\": " + config.error).c_str());
    } else if (!config_.error.empty() && error_.empty()) {
        shared::set_error(nullptr);
    }
    pg::name_session(("outbox " + config.name + "/" + std::to_string(lane_.lane)).c_str());
    config_ = std::move(config);
    loaded_ = true;
    return Load::done;
}

// Library and SQL of different versions: none of our statements may fit the tables.
void Relay::idle_until_updated(const char *version)
{
    std::string error = std::string("the library is of version " OUTBOX_VERSION " and the extension in this database of version ") + version +
                        ": ALTER EXTENSION outbox UPDATE";
    if (error != config_.error)
        pg::log(pg::Level::warning, ("outbox: a relay of database \"" + std::string(pg::my_database_name()) + "\" waits: " + error).c_str());
    config_.error = error;
    shared::set_error(error.c_str());
    loaded_ = true;
}

bool Relay::close()
{
    if (publisher_ != nullptr)
        publisher_->close(kCloseLimit);
    parking_.close(kCloseLimit);
    return !Publisher::left_threads_behind();
}

bool Relay::extension_usable()
{
    pg::Extension extension = pg::lock_extension();
    if (!extension.present && !extension.busy) {
        loaded_ = false;  // load() ends the relay
        back_off_until_ = {};
    }
    return extension.present;
}

// DROP EXTENSION tells nobody. A relay that sends notices in its next pass; one that does not must look.
bool Relay::extension_gone()
{
    if (Clock::now() - extension_seen_at_ < milliseconds(settings::poll_interval_ms))
        return false;
    extension_seen_at_ = Clock::now();
    pg::Transaction transaction;
    extension_usable();
    transaction.commit();
    return !loaded_;
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
        scheduled_at_ = claims_at_ = Clock::now() + seconds(1);
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
        std::int64_t ms = store::move_due(scheduled_front_, kScheduledBatch, kLookAtScheduled.count());
        busy_ = false;
        scheduled_looked_at_ = now;
        scheduled_at_ = Clock::now() + (ms < 0 ? kLookAtScheduled : milliseconds(ms));
    }
    if (Clock::now() >= claims_at_) {
        pg::Transaction transaction;
        bool more = extension_usable() && store::forget_claims(claims_front_, settings::inbox_retention_s, kClaims) == kClaims;
        transaction.commit();
        claims_at_ = Clock::now() + (more ? kBetweenClaims : milliseconds(between_housekeepings()));
    }
    if (Clock::now() - housekeeping_at_ < between_housekeepings())
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
        voice().trouble(pg::Level::warning, line);
    }
    counts_.count(counts_.failures);
    error_ = what;
    shared::set_error(what);
    loaded_ = false;
    parking_.doubt();
    enter(State::backing_off);
    back_off_until_ = Clock::now() + milliseconds(backoff_.next_ms(random_()));
}

void Relay::enter(State state)
{
    if (state == state_)
        return;
    State before = std::exchange(state_, state);
    if (lane_.lane == 0)
        say_whether_it_sends(before);
    shared::set_state(state);
    pg::report_activity(state == State::running ? "publishing" : nullptr);
}

// What somebody ordered, and no trouble of the sink's. Lane 0 says it for all.
void Relay::say_whether_it_sends(State before)
{
    auto ordered = [](State s) { return s == State::halted || s == State::paused || s == State::off; };
    std::string line = "outbox: sink \"" + config_.name + "\" ";
    if (state_ == State::halted)
        line += "is halted and sends nothing: " + config_.halted;
    else if (state_ == State::paused)
        line += "is paused, until outbox.resume";
    else if (state_ == State::off)
        line += "sends nothing: outbox.publish is off";
    else if (ordered(before) && state_ != State::disabled)
        line += "goes on";
    else
        return;
    pg::log(state_ == State::halted ? pg::Level::warning : pg::Level::info, line.c_str());
}

// The flag `sleeping` and the latch belong together: a writer clears the one and sets the other. While the relay works its
// waits take the latch, so it must not be thought asleep.
void Relay::awake()
{
    if (asleep_)
        shared::sleeping(false);
    asleep_ = false;
}

void Relay::sleep(Next next)
{
    if (next != Next::wait || state_ != State::idle)
        awake();
    if (next == Next::gather)
        pg::wait(pg::Wait::idle, -1, kGather.count());  // writers wake nobody who is not asleep
    if (next == Next::again || next == Next::gather)
        return;
    bool backing_off = Clock::now() < back_off_until_;
    Clock::time_point until = Clock::now() + milliseconds(settings::poll_interval_ms);
    if (backing_off)
        until = std::min(until, back_off_until_);
    else if (lane_.lane == 0 && config_.error.empty())
        until = std::min(until, std::max(std::min(scheduled_at_, claims_at_), Clock::now() + milliseconds(20)));
    if (state_ == State::idle)
        until = std::min(until, std::max(parking_.next_pass(), Clock::now() + milliseconds(20)));
    if (counts_.any)
        until = std::min(until, std::max(save_counts_at_, Clock::now() + milliseconds(20)));
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
    if (time_over && asleep_) {
        // One look per interval is enough: asleep again before it, since a writer may have come just as the time was over.
        shared::sleeping(true);
        return;
    }
    awake();
    busy_ = true;
}

}  // namespace outbox::worker
