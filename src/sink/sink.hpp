// A sink as the relay sees it: events go in, delivery reports come out. The relay does not know
// which kind it has. One Sink object is one producer: after a fatal error or purge() it is
// destroyed and a new one is made, so a late report can never reach a newer batch.
//
// Not thread-safe: one thread (the relay's) calls everything. Nothing here blocks for longer than
// its argument says, nothing calls PostgreSQL.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/event.hpp"
#include "core/options.hpp"
#include "core/verdict.hpp"

namespace outbox::sink {

// What became of one event. `tag` is the caller's number for it, given to send().
struct Report {
    std::uint32_t tag = 0;
    core::Verdict verdict = core::Verdict::delivered;
    std::int32_t code = 0;  // the sink's own error code (Kafka: rd_kafka_resp_err_t, HTTP: the status); 0: none
    std::string words{};    // of this event alone, where the code does not say it all; empty: describe() it
};

enum class Accept {
    queued,   // a Report will come, for every queued event exactly one, whatever happens
    full,     // back-pressure: collect() some reports, then try again; no Report comes
    unsure,   // its destination is asked whether it takes such an event: collect(), try again in a moment; no Report comes
    refused,  // not taken: `Refusal` says why; no Report comes
};

// Poison is the event's own fault. Any other verdict says what the same code says in a report: retry (this destination
// for now), outage, fatal (then fatal() is true).
struct Refusal {
    core::Verdict verdict = core::Verdict::poison;
    std::int32_t code = 0;
    std::string reason;  // for last_error: names topic, sizes and limits; no secrets
};

class Sink {
public:
    virtual ~Sink() = default;  // tears down; may block: call close() first

    // Queue one event. The event's bytes are copied before it returns.
    virtual Accept send(const core::Event& event, std::uint32_t tag, Refusal& why) = 0;

    // Queue several events as one request, all or none; for sinks that were given the option `batch`. `refused` with poison: one of them
    // is at fault, and each is to be sent by itself. What the other side refuses as a whole is sent by itself, event by event, before
    // there is a Report; after recall() each gets `unsent` with the code of the refusal, and is to be sent by itself the next time.
    virtual Accept send_together(std::span<const core::Event* const> events, std::span<const std::uint32_t> tags, Refusal& why) {
        (void)events, (void)tags;
        why = {core::Verdict::poison, 0, "this kind of sink sends each event by itself"};
        return Accept::refused;
    }

    // The destination an event goes to (Kafka: its topic, HTTP: its host): with the aggregate_id the ordering key.
    // The view lives until the next call.
    virtual std::string_view destination(const core::Event& event) = 0;

    // No more events come for now: do not linger for a fuller request.
    virtual void flush() = 0;

    // A non-blocking descriptor that is readable when collect() may have something to do.
    virtual int fd() const = 0;

    // Take what reports there are, at most out.size(); returns their number. Serves errors and logs
    // too. Non-blocking.
    virtual std::size_t collect(std::span<Report> out) = 0;

    // Events queued and not yet reported.
    virtual std::size_t outstanding() const = 0;

    // Take back what has not left yet, at once (Verdict::unsent, or unknown for what waits to be sent again); what is in
    // flight still gets its report. After that the object takes no more events.
    virtual void recall() = 0;

    // Fail what is queued and in flight, at once; the reports (Verdict::unsent for what never left,
    // Verdict::unknown for what may be there) come through collect() as usual within milliseconds.
    // After that the object only takes collect() and close().
    virtual void purge() = 0;

    // The other side sets the pace and answers each event by itself: a batch that takes long is cut short by recall(), and after an
    // outage what is in flight is still waited for. Each event in flight ends by itself in bounded time.
    virtual bool paced() const { return false; }

    // The other side asked not to be tried before then; in the past: nothing of the kind.
    virtual std::chrono::steady_clock::time_point not_before() const { return {}; }

    // Something waits for longer than it should: find out, in the background, what is wrong with that destination. The
    // answer shows in describe(code, destination). Cheap to call again and again.
    virtual void inquire(std::string_view destination) { (void)destination; }

    // The producer will never deliver again (fatal error): collect what is left, destroy, make a new one.
    virtual bool fatal() const = 0;
    // Why: verdict_of() it to see whether a new producer at once makes sense. An outage (the cluster admits no
    // idempotent producer of this user) needs back-off instead. 0: not fatal.
    virtual std::int32_t fatal_code() const { return 0; }

    // The newest error that concerns the sink as a whole or the given code, in words an operator
    // understands (the real cause: "Broker: Topic authorization failed: payments", not "timed out").
    // Empty when there was none since the last delivered report.
    virtual std::string last_error() const = 0;
    virtual std::string describe(std::int32_t code) const = 0;
    virtual std::string describe(std::int32_t code, std::string_view destination) const {
        (void)destination;
        return describe(code);
    }

    // Why this event was refused with this code, as far as it is known. False: more may be known in a moment.
    virtual bool explain(std::int32_t code, const core::Event& event, std::string& words) {
        words = describe(code, destination(event));
        return true;
    }

    // What came of inquire(): whether the sink answered at all, which tells a stuck topic (yes) from an outage (no), and in
    // `words` what it said against the destination, if anything.
    enum class Answer { unknown, yes, no };
    virtual Answer answer(std::string_view destination, std::string& words) const {
        (void)destination;
        words.clear();
        return Answer::unknown;
    }

    // As if the producer had failed for ever. For a fault point.
    virtual void fail_for_test() {}

    // Destroy the producer in at most `limit`: true when it is gone, false when a helper thread still
    // sits in a name lookup (then the process must leave by _exit: src/README.md, Stopping).
    virtual bool close(std::chrono::milliseconds limit) = 0;
};

// Sinks of this process whose threads may not be gone: open ones, and those that close() did not wait for. Zero at the end of
// a process means that no thread of theirs is left, whatever close() said when it was asked.
int threads_alive();

using Clock = std::chrono::steady_clock;

// Makes a sink of options.kind. Throws std::runtime_error with a message that names the option, never a secret.
// All signals are blocked around thread creation.
std::unique_ptr<Sink> make(const core::SinkOptions& options);
std::unique_ptr<Sink> make_kafka(const core::SinkOptions& options);
std::unique_ptr<Sink> make_http(const core::SinkOptions& options);

// outbox.test_sink: one row per check ("reachable", "credentials", "topic payments", "may write").
struct Check {
    std::string name;
    bool ok = false;
    std::string detail;  // what was wrong, and what to do
};
// `cancelled` is polled at least every 100 ms; returns early when it says true.
std::vector<Check> test(const core::SinkOptions& options, std::chrono::milliseconds limit, bool (*cancelled)());
std::vector<Check> test_kafka(const core::SinkOptions& options, std::chrono::milliseconds limit, bool (*cancelled)());
std::vector<Check> test_http(const core::SinkOptions& options, std::chrono::milliseconds limit, bool (*cancelled)());

// What the validator asks of a Kafka server or user-mapping option before it is stored.
enum class PropertyClass { free, ours, restricted_nobody, restricted_program, restricted_files, unknown };
struct PropertyVerdict {
    PropertyClass what = PropertyClass::unknown;
    std::string property;  // canonical librdkafka name ("sasl.password" for sasl_password)
    bool secret = false;   // belongs in the user mapping
    std::string error;     // for unknown names and bad values: what librdkafka said, without the value
    std::string hint;
};
// The class is decided by our table before librdkafka sees anything; the value is tried on a scratch
// configuration only when the class allows the caller to set it (`allow_program`, `allow_files`).
PropertyVerdict check_property(std::string_view option, std::string_view value, bool allow_program, bool allow_files);

}  // namespace outbox::sink
