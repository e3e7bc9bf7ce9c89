// The probe of a sink that is down: one request that stays in the producer with no time limit.
#include "pg/wait.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

using core::Verdict;
using sink::Accept;
using std::chrono::milliseconds;

void Publisher::probe(std::span<const core::Event> events, const Together &which)
{
    sink::Refusal why;
    reasons_.clear();
    gone_ = false;
    probe_fates_.assign(events.size(), Fate::open);
    probe_failure_.reset();
    probe_taken_ = false;
    const core::Event &first = events[which.front()];
    Accept accepted = which.size() > 1 ? offer(events, which, why) : Accept::refused;
    bool alone = which.size() == 1 || (accepted == Accept::refused && why.verdict == Verdict::poison);
    if (alone)
        accepted = sink().send(first, static_cast<std::uint32_t>(which.front()), why);
    probe_out_ = alone ? 1 : which.size();
    probing_ = accepted == Accept::queued;
    probe_to_ = destination(first);
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
    for (std::size_t k = 0; k < n; k++) {
        const sink::Report &r = reports_[k];
        if (r.verdict == Verdict::refused)
            reasons_.emplace(r.tag, r.words);
        if (r.verdict == Verdict::delivered || r.verdict == Verdict::refused) {
            probe_fates_[r.tag] = r.verdict == Verdict::delivered ? Fate::delivered : Fate::refused;
            probe_taken_ = true;
        } else if (r.verdict != Verdict::unsent && !probe_failure_) {
            probe_failure_ = r;
        }
    }
    probe_out_ -= n;
    if (probe_out_ > 0 && !sink().fatal())
        return Probe::waiting;
    probing_ = false;
    if (!probe_failure_ && probe_out_ == 0 && probe_taken_)
        return Probe::taken;  // what was not sent is behind a refused one of its key
    Verdict verdict = probe_failure_ ? probe_failure_->verdict : Verdict::fatal;
    gone_ = verdict == Verdict::gone;
    if (probe_failure_)
        error_ = probe_failure_->words.empty() ? sink().describe(probe_failure_->code) : probe_failure_->words;
    close(kCloseLimit);
    return verdict == Verdict::poison || verdict == Verdict::retry ? Probe::suspect : Probe::failed;
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
