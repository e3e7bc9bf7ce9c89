// Sends a batch through a sink and waits for the reports, keeping each key's order by prevention. Knows deadlines and
// producers; knows nothing of lanes, progress or SQL. publisher.cpp sends and waits, publisher_judge.cpp decides what becomes of
// what was not taken, publisher_probe.cpp has the probe of a sink that is down.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/event.hpp"
#include "core/keygate.hpp"
#include "core/options.hpp"
#include "core/route.hpp"
#include "sink/sink.hpp"

namespace outbox::worker {

using Clock = std::chrono::steady_clock;

// What became of an event of a batch.
enum class Fate : std::uint8_t {
    open,       // not delivered, or not known to be
    delivered,
    dead,       // can never be delivered: see reason()
    deferred,   // its topic or key cannot take it now: see reason()
    refused,    // its own fault, and perhaps not for ever: tried again by the sink's schedule. See reason()
    gated,      // not sent: behind a dead, deferred or parked event of its key
};

// Which events of a batch, by their indexes in ascending order, go out as one request. Those in none go by themselves.
using Together = std::vector<std::size_t>;

class Publisher {
public:
    // Asked each second in which nothing is acknowledged, with what the sink says is wrong (empty: nothing). False: what is still
    // out is not worth waiting for.
    using Patience = std::function<bool(const std::string &)>;
    explicit Publisher(core::SinkOptions options, Patience patience = {});
    ~Publisher();

    enum class Result {
        complete,  // no event is open
        partly,    // it took long, or patience was at its end; the rest in another transaction
        stopped,   // the process is to end; what was acknowledged within the time allowed is delivered
        outage,    // the sink takes nothing now: error() says why, gone() whether it ever will, not_before() when it wants to be asked
    };

    // Sends the events whose fate is open, in order, and waits. `gated(event)` is asked before an event is sent; a dead
    // event's key is gated from then on if the sink holds dead keys. `meanwhile()` is called once all are on their way. Where one of
    // those that belong together is gated, the others go by themselves. When it returns nothing is in flight.
    template <class Gated, class Meanwhile>
    Result publish(std::span<const core::Event> events, std::vector<Fate> &fates, Gated &&gated, Meanwhile &&meanwhile,
                   std::span<const Together> together = {})
    {
        using G = std::remove_reference_t<Gated>;
        using M = std::remove_reference_t<Meanwhile>;
        return publish_all(events, fates, together, Caller{[](void *g, const core::Event &e) { return (*static_cast<G *>(g))(e); }, &gated,
                                                 [](void *m) { (*static_cast<M *>(m))(); }, &meanwhile});
    }
    template <class Gated>
    Result publish(std::span<const core::Event> events, std::vector<Fate> &fates, Gated &&gated)
    {
        return publish(events, fates, gated, [] {});
    }

    // Makes the producer, if there is none: that may wait for a second, so not in a transaction.
    void make_ready() { sink(); }

    // The probe of a sink that is down: one request, which stays in the producer with no time limit of ours.
    void probe(std::span<const core::Event> events, const Together &which);
    // taken: the sink is there: each is delivered, refused (see reason()), or open, since it is behind a refused one of its key.
    // suspect: the sink may be there, publish() must judge them. What was delivered of several is in probe_fates() whatever the result is.
    enum class Probe { waiting, taken, failed, suspect };
    Probe probe_result();
    const std::vector<Fate> &probe_fates() const { return probe_fates_; }  // by the index of the event
    bool probing() const { return probing_; }
    Probe end_probe(std::chrono::milliseconds grace);  // for good: waits for its report if it has left, at most so long

    std::string_view destination(const core::Event &event);  // needs no producer. Valid until the next call
    // Asks in the background what is the matter with a destination, and says what came of it the last time.
    sink::Sink::Answer inquire(std::string_view destination, std::string &words);
    const std::string &error() const { return error_; }       // of the last outage
    bool gone() const { return gone_; }
    Clock::time_point not_before() const { return not_before_; }
    int failed_producers() { return std::exchange(failed_producers_, 0); }  // for good, since it was last asked
    const std::string &overtaking() const { return overtaking_; }  // what must never happen, and did in the last publish()
    const std::string &reason(std::size_t index) const;       // why event `index` of the last publish() is dead
    int fd() { return sink_ != nullptr ? sink_->fd() : -1; }
    const core::SinkOptions &options() const { return options_; }

    // Gives up the producer in bounded time. False: a thread of it is still there.
    bool close(std::chrono::milliseconds limit);
    // Such a thread was left behind by any producer of this process, which must therefore leave by _exit.
    static bool left_threads_behind();

private:
    static constexpr std::chrono::milliseconds kCloseLimit{500};
    static constexpr std::chrono::milliseconds kProducerPause{1000};  // new producers: at most one a second
    static constexpr std::chrono::milliseconds kSilence{1000};        // how long nothing is acknowledged before patience is asked for
    static long until(Clock::time_point t);  // in milliseconds, for pg::wait
    struct Caller {
        bool (*gated)(void *, const core::Event &);
        void *gated_arg;
        void (*meanwhile)(void *);
        void *meanwhile_arg;
    };
    enum class Ended { all_reported, stopped, outage, new_producer, refused, stalled, cut_short };

    sink::Sink &sink();  // makes one, at most one a second
    Result publish_all(std::span<const core::Event> events, std::vector<Fate> &fates, std::span<const Together> together, const Caller &caller);
    // One batch at work: what publish() was given, and what it finds out.
    struct Work {
        std::span<const core::Event> events;
        std::vector<Fate> &fates;
        const Caller &caller;
        core::KeyGate held;                   // keys that a dead or deferred event of this batch gates
        std::vector<sink::Report> suspects;   // reported as poison: alone or with innocent neighbours
        std::map<std::string, std::string, std::less<>> closed;  // topics that take nothing for now, and why
        std::size_t acknowledged = 0;         // since the last send_open()
        bool tried_again = false;             // after a refusal that need not be the events' fault
        bool told = false;                    // of a new producer
        Clock::time_point judged_from{};      // when it was first asked who is guilty
        bool takes_too_long() const;
        Clock::time_point began{};            // sending
        bool all_sent = false;                // once
        bool cut_short = false;               // it took long: what had not left was taken back
        core::KeyGate postponed{};            // keys of events that were handed back unsent in this attempt
        std::vector<const Together *> together{};  // by the index of the event, if there are any
        std::vector<bool> sent{};                  // of these, by the attempt that is under way
        bool gate(Publisher &p, std::size_t i);
        bool postpone(Publisher &p, std::size_t i) const;
    };

    Result attempt(Work &work);
    void tell() const;
    Ended send_open(Work &w);
    bool send_together(Work &w, std::size_t i);
    sink::Accept offer(std::span<const core::Event> events, const Together &which, sink::Refusal &why);
    Ended send_one(Work &w, std::size_t i);
    Ended await(Work &w, std::size_t leave);
    Ended end_of(Work &w, Ended ended);
    bool impatient(Clock::time_point now);
    void take_reports(Work &w);
    void withdraw(Work &w);
    void check_order(const Work &w);
    Ended judge(Work &w);
    Ended send_alone(Work &w);
    void convict(Work &w);
    bool is_stuck(Work &w, bool overdue);
    void defer_open(Work &w);
    void defer_closed(Work &w);
    void set_aside(Work &w, std::size_t i, Fate fate, std::string reason);
    Ended after_reports(const Work &w) const;

    core::SinkOptions options_;
    Patience patience_;
    core::Route route_;
    core::Buffer route_buffer_;
    std::unique_ptr<sink::Sink> sink_;
    Clock::time_point made_at_{}, last_ack_{}, asked_at_{}, not_before_{};
    std::optional<Clock::time_point> stop_by_;
    std::string probe_to_;
    std::vector<Fate> probe_fates_;
    std::size_t probe_out_ = 0;  // reports to come
    bool probe_taken_ = false;   // some of it
    std::optional<sink::Report> probe_failure_;
    Clock::time_point probed_at_{};
    std::vector<sink::Report> reports_;
    std::unordered_map<std::size_t, std::string> reasons_;
    std::unordered_set<std::int64_t> apart_;  // open events that were refused together, so that each goes by itself
    int failed_producers_ = 0;
    bool alone_ = false;  // what sink() makes: a producer that a refusal does not harm
    bool saw_fatal_ = false, saw_outage_ = false, probing_ = false, probe_refused_ = false, gone_ = false;
    std::string error_, overtaking_;
};

}  // namespace outbox::worker
