#include "worker/parking.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/moment.hpp"
#include "core/refusal.hpp"
#include "core/route.hpp"
#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/settings.hpp"
#include "store/parked.hpp"
#include "worker/voice.hpp"

namespace outbox::worker {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kBatch = 1'000;
constexpr milliseconds kFirstPause{1000};
constexpr milliseconds kBetweenPasses{1000};
// What refresh() costs grows with the number of parked events, and live events wait meanwhile: it is done for a twentieth of the time at
// most, and where nothing is known to have changed for a five-hundredth, so that it is not seen in every hundredth event. By the time that this
// thread worked: where it took long since the machine is busy, what was released does not wait twenty times as long for the next, but as long.
constexpr seconds kBetweenRefreshes{10};
constexpr seconds kBetweenQuestions{2};
constexpr int kRefreshShare = 20;
constexpr int kQuietShare = 500;
constexpr int kUntested = 3;  // passes

void Parking::load(const store::Lane &lane, const store::SinkConfig &config)
{
    publisher_.reset();  // what was redriven is to be judged anew, by a producer that remembers nothing of its topic
    bool known = gate_is_true_ && config.options == options_ && lane.sink_id == lane_.sink_id && lane.lane == lane_.lane && lane.epoch == lane_.epoch;
    gate_is_true_ = false;  // until it is read
    lane_ = lane;
    options_ = config.options;
    name_ = config.name;
    gone_ = false;
    if (!known)
        addressed_.reset();
    anything_ = store::anything_parked(lane_);
    readdress();
    if (!known) {
        closed_.clear();
        for (std::string &destination : store::destinations_with_piles(lane_))
            closed_.try_emplace(std::move(destination));
    }
    for (auto &[destination, state] : closed_) {  // somebody may have seen to it
        state.pause.reset();
        state.test_at = {};
    }
    if (known && Clock::now() < refresh_at_)
        gate_is_true_ = released_ = true;  // in good time
    else
        refresh();
    pause_.reset();
    next_ = {};
}

// Rows that somebody sits on follow when they are let go.
void Parking::readdress()
{
    core::Route route(options_);
    if (addressed_ != route.text())
        addressed_ = store::readdress(lane_, route) ? std::optional(route.text()) : std::nullopt;
}

// Makes due what waits behind nothing any more, and reads which keys are gated. If it fails the sink is loaded again.
void Parking::refresh()
{
    core::Moment begin = core::Moment::now();
    gate_is_true_ = false;
    readdress();
    if (anything_)
        store::promote(lane_, hold(), closed());
    store::load_gate(lane_, hold(), gate_);
    gate_is_true_ = true;
    released_ = !addressed_;
    core::Moment end = core::Moment::now();
    std::chrono::nanoseconds worked = end.worked - begin.worked;
    refresh_at_ = end.time + std::max<Clock::duration>(end.time - begin.time, kRefreshShare * worked);
    quiet_refresh_at_ = end.time + std::max<Clock::duration>(kBetweenRefreshes, kQuietShare * worked);
}

store::Destinations Parking::closed() const
{
    store::Destinations names;
    for (const auto &[destination, state] : closed_)
        names.push_back(destination);
    return names;
}

// Those whose time has come, and those with which something was wrong when the sink was asked, and is not any more.
store::Destinations Parking::to_test()
{
    store::Destinations names;
    std::string words;
    for (auto &[destination, state] : closed_) {
        bool due = state.asked && Clock::now() >= state.test_at;
        if (Clock::now() >= state.ask_at) {
            state.ask_at = Clock::now() + kBetweenQuestions;
            if (publisher().inquire(destination, words) == sink::Sink::Answer::yes)
                due |= std::exchange(state.wrong, !words.empty()) && words.empty();
            state.asked = true;
        }
        if (due)
            names.push_back(destination);
    }
    return names;
}

// Which destinations take nothing and which take something, after a batch. One that took some of it is not closed: it may be one
// partition that is stuck.
void Parking::tally(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher)
{
    Tallies tallies;
    for (std::size_t i = 0; i < events.size(); i++) {
        bool took = fates[i] == Fate::delivered || fates[i] == Fate::dead || fates[i] == Fate::refused;
        if (!took && fates[i] != Fate::deferred)
            continue;
        std::string_view destination = publisher.destination(events[i]);
        auto tally = tallies.find(destination);
        if (tally == tallies.end())
            tally = tallies.emplace(std::string(destination), Tally{}).first;
        (took ? tally->second.took_some : tally->second.refused_some) = true;
    }
    for (const auto &[destination, tally] : tallies) {
        if (tally.took_some) {
            released_ |= closed_.erase(destination) > 0;
            continue;
        }
        Closed &state = closed_[destination];
        state.untested = 0;
        state.asked = false;
        state.test_at = Clock::now() + milliseconds(state.pause.next_ms(random_()));
    }
}

// One that was to be tried again, and need not be any more.
void Parking::tell_dead(std::int64_t id, const std::string &why) const
{
    char line[400];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d: the parked event with id %lld is dead: %s", name_.c_str(), lane_.lane,
             static_cast<long long>(id), why.c_str());
    voice().trouble(pg::Level::warning, line);
}

void Parking::count(store::ParkReason why)
{
    using enum store::ParkReason;
    counts_.count(why == dead ? counts_.parked_dead : why == retry ? counts_.parked_retry : counts_.parked_behind);
    if (why != behind)
        counts_.count(why == dead ? counts_.poison : counts_.stuck);
}

void Parking::park(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher)
{
    std::vector<store::ToPark> parked;
    for (std::size_t i = 0; i < events.size(); i++) {
        if (fates[i] == Fate::delivered || fates[i] == Fate::open)
            continue;
        std::int64_t pause_ms = kFirstPause.count();
        store::ParkReason reason = fates[i] == Fate::dead       ? store::ParkReason::dead
                                   : fates[i] == Fate::deferred ? store::ParkReason::retry
                                   : fates[i] == Fate::refused  ? after_refusal(pause_ms)
                                                                : store::ParkReason::behind;
        std::string destination(publisher.destination(events[i]));
        if (reason != store::ParkReason::dead || hold())
            gate_.block(destination, events[i].aggregate_id);
        count(reason);
        parked.push_back({events[i].id, std::move(destination), reason, reason == store::ParkReason::behind ? std::string() : publisher.reason(i), pause_ms});
    }
    if (parked.empty())
        return;
    tally(events, fates, publisher);
    store::park(lane_, parked);
    anything_ = true;
    auto cause = std::find_if(parked.begin(), parked.end(), [](const store::ToPark &e) { return e.reason != store::ParkReason::behind; });
    if (cause == parked.end())
        return;  // of what they wait for the log has told
    char line[400];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d parked %zu events, the first with id %lld: %s", name_.c_str(), lane_.lane,
             parked.size(), static_cast<long long>(parked[0].id), cause->error.c_str());
    voice().trouble(pg::Level::warning, line);
}

std::size_t Parking::pass()
{
    if ((!anything_ && !released_) || Clock::now() < next_)
        return 0;
    next_ = Clock::now() + kBetweenPasses;
    pg::Transaction transaction;
    if (!pg::lock_extension().present)
        return 0;
    std::vector<core::Event> events = take();
    if (events.empty()) {
        Clock::time_point begin = Clock::now();
        if (released_) {
            anything_ = true;
        } else if (begin >= look_again_) {
            anything_ = store::anything_parked(lane_);
            look_again_ = Clock::now() + kQuietShare * (Clock::now() - begin);
        }
        if (!anything_)
            closed_.clear();
        transaction.commit();
        return 0;
    }
    std::vector<Fate> fates;
    pg::HoldInterrupts held;  // to the commit: what is acknowledged in time is recorded
    Publisher::Result result = publisher().publish(events, fates, [](const core::Event &) { return false; });
    tally(events, fates, *publisher_);
    settle(events, fates);
    store::Ids delivered;
    std::int64_t now = unix_now_us();
    for (std::size_t i = 0; i < events.size(); i++)
        if (fates[i] == Fate::delivered) {
            delivered.push_back(events[i].id);
            counts_.delivered(events[i], now);
            counts_.count(counts_.unparked);
        }
    counts_.count(counts_.producers, publisher_->failed_producers());
    std::vector<store::Key> free = store::unpark(lane_, hold(), delivered);
    transaction.commit();
    for (const store::Key &key : free)
        gate_.release(key.destination, key.aggregate_id);
    released_ |= !delivered.empty();
    if (result == Publisher::Result::outage) {
        outage_ = publisher_->error();
        gone_ = publisher_->gone();
        next_ = std::max(Clock::now() + milliseconds(pause_.next_ms(random_())), publisher_->not_before());
    } else {
        outage_.clear();
        pause_.reset();
        if (!delivered.empty())
            next_ = {};  // more may be due, and others may follow
    }
    return delivered.size();
}

Publisher &Parking::publisher()
{
    if (publisher_ == nullptr) {
        core::SinkOptions options = options_;
        // Where nothing at all is acknowledged Publisher waits twice the one, and gives up after the other. An HTTP request has a
        // time-out of its own.
        if (options.kind == core::Kind::kafka) {
            options.stall_timeout_ms = options_.stall_timeout_ms / 2;
            options.delivery_timeout_ms = options_.stall_timeout_ms + options_.stall_timeout_ms / 4;
        }
        publisher_ = std::make_unique<Publisher>(options);
    }
    return *publisher_;
}

std::vector<core::Event> Parking::take()
{
    Clock::time_point now = Clock::now();
    if (now >= (released_ ? refresh_at_ : quiet_refresh_at_))
        refresh();
    store::Destinations tested = to_test();
    std::vector<core::Event> events = store::take_due(lane_, hold(), kBatch, closed(), tested);
    for (const std::string &destination : tested) {
        if (std::any_of(events.begin(), events.end(), [&](const core::Event &e) { return publisher().destination(e) == destination; }))
            continue;
        // Somebody sits on its rows, or nothing is left of it.
        if (auto state = closed_.find(destination); ++state->second.untested >= kUntested) {
            closed_.erase(state);
            released_ = true;
        }
    }
    return events;
}

// What was not delivered stays, with its reason. An outage is nobody's fault: what is still open stays as it is, and its attempts
// are not counted.
void Parking::settle(std::span<const core::Event> events, const std::vector<Fate> &fates)
{
    std::map<std::pair<store::ParkReason, std::string>, store::Ids> groups;
    std::map<std::string, store::Ids> refused;
    for (std::size_t i = 0; i < events.size(); i++) {
        if (fates[i] != Fate::delivered && (fates[i] != Fate::dead || hold()))
            gate_.block(publisher_->destination(events[i]), events[i].aggregate_id);  // it may have been redriven since the gate was read
        switch (fates[i]) {
        case Fate::delivered:
        case Fate::open: break;
        case Fate::gated: groups[{store::ParkReason::behind, {}}].push_back(events[i].id); break;
        case Fate::dead:
            count(store::ParkReason::dead);
            tell_dead(events[i].id, publisher_->reason(i));
            groups[{store::ParkReason::dead, publisher_->reason(i)}].push_back(events[i].id);
            released_ |= !hold();
            break;
        case Fate::deferred:
            counts_.count(counts_.stuck);
            groups[{store::ParkReason::retry, publisher_->reason(i)}].push_back(events[i].id);
            break;
        case Fate::refused:
            counts_.count(counts_.stuck);
            refused[publisher_->reason(i)].push_back(events[i].id);
            break;
        }
    }
    for (const auto &[group, ids] : groups)
        store::put_back(lane_, ids, group.first, group.second);
    for (const auto &[reason, ids] : refused)
        for (std::int64_t id : store::put_back_refused(lane_, ids, reason, schedule())) {
            count(store::ParkReason::dead);
            tell_dead(id, reason);
            released_ |= !hold();
        }
}

store::Schedule Parking::schedule() const
{
    store::Schedule schedule{options_.http.attempts, {}};
    for (std::int64_t pause_s : core::kRefusalPauses)
        schedule.pauses_ms.push_back(static_cast<std::int64_t>(static_cast<double>(pause_s) * 1000 * settings::retry_scale));
    return schedule;
}

// What becomes of an event after its first attempt.
store::ParkReason Parking::after_refusal(std::int64_t &pause_ms) const
{
    store::Schedule s = schedule();
    pause_ms = s.pauses_ms.front();
    return s.attempts > 1 ? store::ParkReason::retry : store::ParkReason::dead;
}

}  // namespace outbox::worker
