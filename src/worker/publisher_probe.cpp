// The probe of a sink that is down: one event that stays in the producer with no time limit.
#include "pg/wait.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

using core::Verdict;
using sink::Accept;
using std::chrono::milliseconds;

void Publisher::probe(const core::Event &event)
{
    sink::Refusal why;
    reasons_.clear();
    gone_ = false;
    Accept accepted = sink().send(event, 0, why);
    probing_ = accepted == Accept::queued;
    probe_to_ = destination(event);
    probed_at_ = Clock::now();
    probe_refused_ = accepted == Accept::unsure ||
                     (accepted == Accept::refused && (why.verdict == Verdict::poison || why.verdict == Verdict::retry));
    if (probing_) {
        sink().flush();
        return;
    }
    error_ = why.reason;
    if (!probe_refused_)
        close(kCloseLimit);  // a producer that takes nothing does not come to itself again
}

Publisher::Probe Publisher::probe_result()
{
    if (!probing_)
        return probe_refused_ ? Probe::suspect : Probe::failed;
    std::size_t n = sink().collect(reports_);
    std::string seen = sink().last_error();
    if (!seen.empty())
        error_ = seen;
    if (n == 0 && !sink().fatal()) {
        // The sink may be there again, and only this event's destination is stuck: the others must not wait for it.
        std::string words;
        if (Clock::now() - probed_at_ < milliseconds(2 * options_.stall_timeout_ms) ||
            inquire(probe_to_, words) != sink::Sink::Answer::yes || words.empty())
            return Probe::waiting;
        error_ = words;
        close(kCloseLimit);
        return Probe::suspect;
    }
    probing_ = false;
    if (n > 0 && reports_[0].verdict == Verdict::delivered)
        return Probe::delivered;
    if (n > 0 && reports_[0].verdict == Verdict::refused) {
        reasons_.emplace(0, reports_[0].words);
        return Probe::refused;
    }
    gone_ = n > 0 && reports_[0].verdict == Verdict::gone;
    bool events_fault = n > 0 && (reports_[0].verdict == Verdict::poison || reports_[0].verdict == Verdict::retry);
    if (n > 0)
        error_ = reports_[0].words.empty() ? sink().describe(reports_[0].code) : reports_[0].words;
    close(kCloseLimit);
    return events_fault ? Probe::suspect : Probe::failed;
}

Publisher::Probe Publisher::end_probe(milliseconds grace)
{
    Clock::time_point limit = Clock::now() + grace;
    sink().recall();
    Probe result = probe_result();
    while (result == Probe::waiting && sink_ != nullptr && Clock::now() < limit) {
        pg::wait(pg::Wait::delivery, sink_->fd(), until(limit));
        result = probe_result();
    }
    close(kCloseLimit);  // it takes no more events, whatever became of this one
    return result;
}

}  // namespace outbox::worker
