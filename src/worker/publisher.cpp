#include "worker/publisher.hpp"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "state/faults.hpp"
#include "state/shared.hpp"
#include "worker/voice.hpp"

namespace outbox::worker {

using core::Verdict;
using sink::Accept;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kStopGrace{2000};          // how long a stop waits for the reports still out (guarantee G4)
constexpr milliseconds kPurgeLimit{1000};
constexpr milliseconds kPurgeLimitAtStop{200};    // the stop as a whole stays below 3 s
constexpr int kProducersPerBatch = 5;             // then it is an outage

}  // namespace

long Publisher::until(Clock::time_point t)
{
    auto ms = std::chrono::duration_cast<milliseconds>(t - Clock::now()).count() + 1;
    return static_cast<long>(std::clamp<long long>(ms, 0, 60'000));
}

Publisher::Publisher(core::SinkOptions options, Patience patience)
    : options_(std::move(options)), patience_(std::move(patience)), route_(options_), reports_(1024)
{
}

std::string_view Publisher::destination(const core::Event &event)
{
    return sink_ != nullptr ? sink_->destination(event) : route_.to(event, route_buffer_);
}

Publisher::~Publisher() { close(kCloseLimit); }

sink::Sink &Publisher::sink()
{
    if (sink_ == nullptr) {
        while (Clock::now() < made_at_ + kProducerPause && !pg::termination_requested())
            pg::wait(pg::Wait::delivery, -1, until(made_at_ + kProducerPause));
        core::SinkOptions options = options_;
        options.gapless = !fault("overtaking");
        options.alone = alone_;
        sink_ = sink::make(options);
        made_at_ = Clock::now();
    }
    return *sink_;
}

bool Publisher::close(milliseconds limit)
{
    if (sink_ != nullptr)
        not_before_ = sink_->not_before();
    bool gone = sink_ == nullptr || sink_->close(limit);
    sink_.reset();
    probing_ = false;
    return gone;
}

bool Publisher::left_threads_behind() { return sink::threads_alive() > 0; }

const std::string &Publisher::reason(std::size_t index) const
{
    static const std::string none;
    auto known = reasons_.find(index);
    return known == reasons_.end() ? none : known->second;
}

// ---- a batch --------------------------------------------------------------------------------------------------------------

Publisher::Result Publisher::publish_all(std::span<const core::Event> events, std::vector<Fate> &fates, std::span<const Together> together,
                                         const Caller &caller)
{
    fates.resize(events.size(), Fate::open);
    reasons_.clear();
    stop_by_.reset();
    alone_ = false;
    overtaking_.clear();
    gone_ = false;
    last_ack_ = Clock::now();
    Work work{events, fates, caller, {}, {}, {}};
    if (!together.empty())
        work.together.resize(events.size());
    for (const Together &which : together)
        for (std::size_t i : which)
            work.together[i] = &which;
    pg::HoldInterrupts hold;
    try {
        Result result = attempt(work);
        for (std::size_t i = 0; !apart_.empty() && i < events.size(); i++)
            if (fates[i] != Fate::open)
                apart_.erase(events[i].id);
        return result;
    } catch (...) {
        // No lane is released while a message of it is in the producer.
        close(kCloseLimit);
        throw;
    }
}

Publisher::Result Publisher::attempt(Work &work)
{
    auto undecided = [&work] { return std::count(work.fates.begin(), work.fates.end(), Fate::open); };
    auto before = undecided();
    for (int producers = 0; producers < kProducersPerBatch; producers++) {
        if (pg::termination_requested())
            return Result::stopped;
        auto now = undecided();
        if (now == 0)
            return Result::complete;
        if (now < before) {  // it gets on
            before = now;
            producers = 0;
        }
        Ended ended = send_open(work);
        if (ended == Ended::all_reported) {
            if (undecided() == 0)
                return Result::complete;
            continue;  // behind an event of their key that was refused meanwhile
        }
        if (ended == Ended::new_producer) {
            failed_producers_++;
            if (!std::exchange(work.told, true))
                tell();
        }
        // What is in the producer must not come after what is sent next.
        withdraw(work);
        check_order(work);
        if (ended == Ended::refused) {
            defer_closed(work);
            auto innocent = [](const sink::Report &r) { return core::worth_another_try(r.code); };
            if (std::any_of(work.suspects.begin(), work.suspects.end(), innocent) && !std::exchange(work.tried_again, true))
                continue;
            ended = judge(work);
            if (ended == Ended::new_producer && work.takes_too_long())
                return Result::partly;
        }
        else if (ended == Ended::stalled)
            defer_open(work);
        if (ended == Ended::stopped)
            return Result::stopped;
        if (ended == Ended::outage)
            return Result::outage;
        if (ended == Ended::cut_short)
            return undecided() == 0 ? Result::complete : Result::partly;
    }
    error_ = "the producer failed " + std::to_string(kProducersPerBatch) + " times in a row: " + error_;
    return Result::outage;
}

void Publisher::tell() const
{
    char line[400];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d makes a new producer: %s", options_.sink.c_str(), options_.lane, error_.c_str());
    voice().trouble(pg::Level::info, line);
}

// Sends what is open, in order. Whatever an earlier attempt left undelivered goes out again before anything newer of its key.
Publisher::Ended Publisher::send_open(Work &w)
{
    saw_fatal_ = saw_outage_ = false;
    w.suspects.clear();
    w.closed.clear();
    w.acknowledged = 0;
    w.postponed.clear();
    w.sent.assign(w.together.size(), false);
    sink();  // making a producer may take a second, which is not the sink's
    last_ack_ = Clock::now();
    if (w.began == Clock::time_point{})
        w.began = last_ack_;
    for (std::size_t i = 0; i < w.events.size(); i++) {
        if (w.fates[i] != Fate::open)
            continue;
        if (fault("fatal_while_sending") && !w.told && i == w.events.size() / 2)
            sink().fail_for_test();
        if (w.postpone(*this, i) || (!w.together.empty() && send_together(w, i)) || w.gate(*this, i))
            continue;
        Ended ended = send_one(w, i);
        if (ended != Ended::all_reported)
            return ended;
    }
    if (fault("fatal_producer") && !w.told)
        sink().fail_for_test();
    sink().flush();
    if (!std::exchange(w.all_sent, true) && !pg::termination_requested())
        w.caller.meanwhile(w.caller.meanwhile_arg);
    return await(w, 0);
}

bool Publisher::Work::gate(Publisher &p, std::size_t i)
{
    const core::Event &e = events[i];
    bool behind = (!held.empty() && held.blocked(p.destination(e), e.aggregate_id)) || caller.gated(caller.gated_arg, e);
    if (behind)
        fates[i] = Fate::gated;
    return behind;
}

// An earlier event of its key was handed back unsent: both in the next attempt.
bool Publisher::Work::postpone(Publisher &p, std::size_t i) const
{
    return !postponed.empty() && postponed.blocked(p.destination(events[i]), events[i].aggregate_id);
}

// Whether event `i` went with others, or waits with them: if all of them may go, and the sink takes them so. If not, each goes by itself.
bool Publisher::send_together(Work &w, std::size_t i)
{
    if (w.together[i] == nullptr || w.sent[i])
        return w.together[i] != nullptr;
    const Together &which = *w.together[i];
    if (std::any_of(which.begin(), which.end(), [&](std::size_t k) { return w.postpone(*this, k); })) {
        for (std::size_t k : which)
            w.postponed.block(destination(w.events[k]), w.events[k].aggregate_id);
        return true;
    }
    bool whole = true;
    for (std::size_t k : which)
        whole = w.fates[k] == Fate::open && !w.gate(*this, k) && whole;
    sink::Refusal why;
    whole = whole && offer(w.events, which, why) == Accept::queued;
    for (std::size_t k : which) {
        w.sent[k] = whole;
        if (!whole)
            w.together[k] = nullptr;
    }
    return whole;
}

// Refused as poison: they are to go by themselves.
Accept Publisher::offer(std::span<const core::Event> events, const Together &which, sink::Refusal &why)
{
    std::vector<const core::Event *> several;
    std::vector<std::uint32_t> tags(which.begin(), which.end());
    for (std::size_t i : which) {
        if (apart_.contains(events[i].id)) {
            why = {Verdict::poison, 0, "they were refused together"};
            return Accept::refused;
        }
        several.push_back(&events[i]);
    }
    return sink().send_together(several, tags, why);
}

// all_reported: it was queued, or set aside.
Publisher::Ended Publisher::send_one(Work &w, std::size_t i)
{
    sink::Refusal why;
    for (;;) {
        switch (sink().send(w.events[i], static_cast<std::uint32_t>(i), why)) {
        case Accept::queued:
            // Reports are taken while sending: success costs little now, and a failure is known early.
            if ((i & 1023) == 1023) {
                take_reports(w);
                return end_of(w, after_reports(w));
            }
            return Ended::all_reported;
        case Accept::refused:
            if (why.verdict == Verdict::poison)
                set_aside(w, i, Fate::dead, why.reason);
            else if (why.verdict == Verdict::retry)
                set_aside(w, i, Fate::deferred, why.reason);
            else if (why.verdict == Verdict::fatal) {
                take_reports(w);  // and the producer's end
                Ended ended = after_reports(w);
                return ended == Ended::all_reported ? Ended::new_producer : ended;
            } else {
                error_ = why.reason;
                return end_of(w, Ended::outage);
            }
            return Ended::all_reported;
        case Accept::unsure: {
            sink().flush();
            take_reports(w);
            if (Ended ended = after_reports(w); ended != Ended::all_reported)
                return ended;
            if (pg::termination_requested()) {
                Ended ended = await(w, 0);
                return ended == Ended::all_reported ? Ended::stopped : ended;
            }
            pg::wait(pg::Wait::delivery, sink().fd(), 50);
            break;
        }
        case Accept::full:
            sink().flush();
            Ended ended = await(w, sink().outstanding() / 2);
            if (ended != Ended::all_reported)
                return ended;
        }
    }
}

void Publisher::take_reports(Work &w)
{
    for (;;) {
        std::size_t n = sink().collect(reports_), acknowledged_before = w.acknowledged;
        for (std::size_t k = 0; k < n; k++) {
            const sink::Report &r = reports_[k];
            switch (r.verdict) {
            case Verdict::delivered:
                w.fates[r.tag] = Fate::delivered;
                w.acknowledged++;
                break;
            case Verdict::unsent:
                w.postponed.block(destination(w.events[r.tag]), w.events[r.tag].aggregate_id);
                if (r.code > 0)
                    apart_.insert(w.events[r.tag].id);
                break;
            case Verdict::unknown: break;  // nor is this a verdict on the event: it stays open
            case Verdict::fatal: saw_fatal_ = true; error_ = sink().describe(r.code); break;
            case Verdict::gone: gone_ = true; [[fallthrough]];
            case Verdict::outage:
                saw_outage_ = true;
                error_ = r.words.empty() ? sink().describe(r.code) : r.words;
                break;
            case Verdict::refused:
                set_aside(w, r.tag, Fate::refused, r.words);
                last_ack_ = Clock::now();  // the sink is there
                break;
            case Verdict::retry:
                if (std::string topic(destination(w.events[r.tag])); !w.closed.contains(topic))
                    w.closed.emplace(topic, sink().describe(r.code, topic));
                break;
            case Verdict::poison:
                w.suspects.push_back(r);
                last_ack_ = Clock::now();  // the sink is there
                break;
            }
        }
        if (w.acknowledged > acknowledged_before)
            last_ack_ = Clock::now();
        if (n < reports_.size())
            break;
    }
    if (sink().fatal()) {
        // A cluster that admits no idempotent producer would refuse the next one, too.
        if (!saw_outage_ && !saw_fatal_)
            error_ = sink().last_error();
        (core::verdict_of(sink().fatal_code()) == Verdict::outage ? saw_outage_ : saw_fatal_) = true;
    }
}

Publisher::Ended Publisher::after_reports(const Work &w) const
{
    // A refused request makes a gapless producer fatal too: the refusal is the cause.
    if (!alone_ && (!w.suspects.empty() || !w.closed.empty()))
        return Ended::refused;
    if (saw_outage_)
        return Ended::outage;
    if (saw_fatal_)
        return Ended::new_producer;
    return Ended::all_reported;
}

// An outage of a sink that answers each event by itself: what is in flight has been answered too, or not, before this is one.
Publisher::Ended Publisher::end_of(Work &w, Ended ended)
{
    if (ended != Ended::outage || !sink().paced())
        return ended;
    sink().recall();
    while (sink().outstanding() > 0) {
        if (pg::termination_requested() && !stop_by_)
            stop_by_ = Clock::now() + kStopGrace;
        if (stop_by_ && Clock::now() >= *stop_by_)
            return Ended::stopped;
        shared::beat();
        pg::wait(pg::Wait::delivery, sink().fd(), stop_by_ ? until(*stop_by_) : 1000);
        std::string first = error_;
        take_reports(w);
        error_ = first;
    }
    return ended;
}

// The loop of a process that waits for its sink does not come round, and is well all the same.
bool Publisher::impatient(Clock::time_point now)
{
    if (now < asked_at_ + kSilence)
        return false;
    asked_at_ = now;
    shared::beat();
    return patience_ && now - last_ack_ >= kSilence && !patience_(sink().last_error());
}

// Waits until at most `leave` events are unreported.
Publisher::Ended Publisher::await(Work &w, std::size_t leave)
{
    for (;;) {
        take_reports(w);
        Clock::time_point now = Clock::now();
        if (stop_by_) {
            // What was recalled can make the producer fatal; what is in flight is reported all the same.
            if (sink().outstanding() == 0 || now >= *stop_by_)
                return Ended::stopped;
            pg::wait(pg::Wait::delivery, sink().fd(), until(*stop_by_));
            continue;
        }
        Ended ended = after_reports(w);
        if (ended != Ended::all_reported)
            return end_of(w, ended);
        if (sink().outstanding() <= leave)
            return w.cut_short ? Ended::cut_short : ended;
        if (pg::termination_requested()) {
            // The time allowed is for what is in flight. What is still here must not leave meanwhile and be unanswered
            // when it is over.
            stop_by_ = now + kStopGrace;
            sink().recall();
            continue;
        }
        // Each event takes its time, and a transaction is open.
        Clock::time_point cut = sink().paced() && !w.cut_short ? w.began + milliseconds(options_.stall_timeout_ms) : Clock::time_point::max();
        if (now >= cut) {
            w.cut_short = true;
            sink().recall();
            continue;
        }
        Clock::time_point deadline = last_ack_ + milliseconds(options_.delivery_timeout_ms);
        if (now >= deadline) {
            error_ = sink().last_error();
            if (error_.empty())
                error_ = "nothing was acknowledged for " + std::to_string(options_.delivery_timeout_ms) + " ms";
            return Ended::outage;
        }
        if (impatient(now))
            return Ended::cut_short;
        // Where nothing at all was acknowledged it may be the whole sink: twice the time, and the sink must say what is wrong.
        milliseconds patience(options_.stall_timeout_ms * (w.acknowledged > 0 ? 1 : 2));
        Clock::time_point stall = last_ack_ + patience;
        if (now >= stall - patience / 2 && is_stuck(w, now >= stall))
            return Ended::stalled;
        deadline = std::min({deadline, cut, now + kSilence, now < stall ? now + patience / 4 + milliseconds(1) : now + milliseconds(50)});
        pg::wait(pg::Wait::delivery, sink().fd(), until(deadline));
    }
}

// Takes everything back out of the producer and destroys it. Reports of what was acknowledged meanwhile still count.
void Publisher::withdraw(Work &w)
{
    if (sink_ == nullptr)
        return;
    if (!fault("overtaking"))
        sink_->purge();
    Clock::time_point limit = Clock::now() + (stop_by_ ? kPurgeLimitAtStop : kPurgeLimit);
    bool fatal = saw_fatal_, outage = saw_outage_;
    while (sink_->outstanding() > 0 && Clock::now() < limit) {
        take_reports(w);
        if (sink_->outstanding() > 0)
            pg::wait(pg::Wait::delivery, sink_->fd(), 10);
    }
    saw_fatal_ = fatal;
    saw_outage_ = outage;
    close(kCloseLimit);
}

}  // namespace outbox::worker
