// What becomes of events that a sink did not take: who is guilty of a refused request, which topic is stuck, who is set aside.
#include <algorithm>

#include "pg/wait.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

using std::chrono::milliseconds;

// The event leaves the batch; its key's later events wait behind it.
void Publisher::set_aside(Work &w, std::size_t i, Fate fate, std::string reason)
{
    const core::Event &e = w.events[i];
    w.fates[i] = fate;
    reasons_.emplace(i, std::move(reason));
    if (fate == Fate::deferred || options_.on_poison == core::OnPoison::hold)
        w.held.block(destination(e), e.aggregate_id);
}

// It is not the events' fault, so they need not be judged: the batch goes on without any of these topics.
void Publisher::defer_closed(Work &w)
{
    if (w.closed.empty())
        return;
    for (std::size_t i = 0; i < w.events.size(); i++) {
        if (w.fates[i] != Fate::open)
            continue;
        auto topic = w.closed.find(destination(w.events[i]));
        if (topic != w.closed.end() && !w.gate(*this, i))
            set_aside(w, i, Fate::deferred, topic->second);
    }
    w.closed.clear();
}

// A refused request fails its innocent neighbours too. So each suspect is sent alone; who fails alone is guilty.
Publisher::Ended Publisher::judge_one_by_one(Work &w)
{
    std::vector<std::uint32_t> suspects;
    suspects.swap(w.suspects);
    if (suspects.empty())
        return Ended::new_producer;
    std::sort(suspects.begin(), suspects.end());
    // An earlier event of a suspect's key that another request took down with it goes first.
    core::KeyGate keys;
    for (std::uint32_t i : suspects)
        keys.block(destination(w.events[i]), w.events[i].aggregate_id);
    for (std::uint32_t i = 0; i <= suspects.back(); i++) {
        bool of_a_key = keys.blocked(destination(w.events[i]), w.events[i].aggregate_id);
        if (w.fates[i] != Fate::open || (!of_a_key && !std::binary_search(suspects.begin(), suspects.end(), i)) || w.gate(*this, i))
            continue;
        w.suspects.clear();
        saw_fatal_ = saw_outage_ = false;
        last_ack_ = Clock::now();
        Ended ended = send_one(w, i);
        if (ended == Ended::all_reported && w.fates[i] == Fate::open) {
            sink().flush();
            ended = await(w, 0);
        }
        if (ended == Ended::all_reported)
            continue;
        std::string reason;
        for (int i10ms = 0; ended == Ended::refused && !sink().explain(suspect_code_, w.events[i], reason) && i10ms < 30; i10ms++) {
            take_reports(w);
            pg::wait(pg::Wait::delivery, sink().fd(), 10);
        }
        withdraw(w);
        if (ended != Ended::refused)
            return ended;
        if (w.closed.empty())
            set_aside(w, i, Fate::dead, std::move(reason));
        defer_closed(w);
    }
    w.suspects.clear();
    return Ended::new_producer;
}

// The rest was acknowledged and these are not. If the sink still answers, it is their topics' or partitions' fault; if it
// does not, it is an outage, and nobody's fault. The sink is asked in good time, in the background.
bool Publisher::is_stuck(Work &w, bool overdue)
{
    auto open = std::find(w.fates.begin(), w.fates.end(), Fate::open);
    if (open == w.fates.end())
        return false;
    std::string to(destination(w.events[static_cast<std::size_t>(open - w.fates.begin())]));
    std::string words;
    if (overdue && sink().answer(to, words) == sink::Sink::Answer::yes && (w.acknowledged > 0 || !words.empty())) {
        error_ = words;
        return true;
    }
    sink().inquire(to);
    return false;
}

sink::Sink::Answer Publisher::inquire(std::string_view destination, std::string &words)
{
    sink::Sink::Answer answer = sink().answer(destination, words);
    sink().inquire(destination);
    return answer;
}

// Stuck events are set aside and sent again by a producer of their own.
void Publisher::defer_open(Work &w)
{
    std::string why = "not acknowledged within " + std::to_string(options_.stall_timeout_ms) + " ms" + (error_.empty() ? "" : ": " + error_);
    for (std::size_t i = 0; i < w.events.size(); i++)
        if (w.fates[i] == Fate::open && !w.gate(*this, i))
            set_aside(w, i, Fate::deferred, why);
}

}  // namespace outbox::worker
