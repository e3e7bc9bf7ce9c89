// What becomes of events that a sink did not take: who is guilty of a refused request, which topic is stuck, who is set aside.
#include <algorithm>
#include <set>

#include "pg/session.hpp"
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
    if (fate == Fate::deferred || fate == Fate::refused || options_.on_poison == core::OnPoison::hold)
        w.held.block(destination(e), e.aggregate_id);
}

// Prevention makes it impossible. If it happens all the same, it does not happen silently.
void Publisher::check_order(const Work &w)
{
    std::set<std::string, std::less<>> destinations;
    std::vector<core::Outcome> outcomes;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < w.events.size(); i++) {
        if (w.fates[i] != Fate::open && w.fates[i] != Fate::delivered)
            continue;
        std::string_view to = *destinations.emplace(destination(w.events[i])).first;
        outcomes.push_back({to, w.events[i].aggregate_id, w.fates[i] == Fate::delivered});
        which.push_back(i);
    }
    std::size_t found = core::find_overtaking(outcomes);
    if (found == core::kNoOvertaking)
        return;
    const core::Event &e = w.events[which[found]];
    std::string line = "the event with id " + std::to_string(e.id) + " and the key \"" + std::string(e.aggregate_id) + "\" has overtaken an earlier one of that key";
    if (overtaking_.empty())
        pg::log(pg::Level::warning, ("outbox: sink \"" + options_.sink + "\" lane " + std::to_string(options_.lane) + ": " + line).c_str());
    overtaking_ = std::move(line);
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

// A refused request fails its innocent neighbours too, so what is open is sent alone. That goes on, whoever the suspects were, until
// another producer may be made: where one event is guilty the next often is.
Publisher::Ended Publisher::judge(Work &w)
{
    std::vector<sink::Report> suspects;
    suspects.swap(w.suspects);
    if (suspects.empty())
        return Ended::new_producer;
    auto undecided = [&w](const sink::Report &r) { return w.fates[r.tag] == Fate::open; };
    if (w.judged_from == Clock::time_point{})
        w.judged_from = Clock::now();
    alone_ = true;
    Ended ended = Ended::all_reported;
    while (ended == Ended::all_reported && !pg::termination_requested() && !w.takes_too_long() &&
           (Clock::now() < made_at_ + kProducerPause || std::any_of(suspects.begin(), suspects.end(), undecided)))
        ended = send_alone(w);
    withdraw(w);
    alone_ = false;
    return ended == Ended::all_reported ? Ended::new_producer : ended;
}

// Each in a request of its own, and one of a key at a time, since nothing holds back a key's next event when this one is refused:
// who fails is guilty.
Publisher::Ended Publisher::send_alone(Work &w)
{
    saw_fatal_ = saw_outage_ = false;
    sink();
    last_ack_ = Clock::now();
    core::KeyGate on_the_way;
    std::vector<std::size_t> sent;
    Ended ended = Ended::all_reported;
    for (std::size_t i = 0; i < w.events.size() && ended == Ended::all_reported; i++) {
        const core::Event &e = w.events[i];
        if (w.fates[i] != Fate::open || on_the_way.blocked(destination(e), e.aggregate_id) || w.gate(*this, i))
            continue;
        on_the_way.block(destination(e), e.aggregate_id);
        sent.push_back(i);
        ended = send_one(w, i);
    }
    if (ended == Ended::all_reported) {
        sink().flush();
        ended = await(w, 0);
    }
    convict(w);
    defer_closed(w);
    if (sent.empty() || std::any_of(sent.begin(), sent.end(), [&w](std::size_t i) { return w.fates[i] == Fate::open; }))
        return ended == Ended::all_reported ? Ended::new_producer : ended;
    return ended;
}

// The reasons can name a topic's limit, for which the sink may still be asking.
void Publisher::convict(Work &w)
{
    std::vector<sink::Report> guilty;
    guilty.swap(w.suspects);
    int patience = 30;
    for (const sink::Report &r : guilty) {
        std::string reason;
        while (!sink().explain(r.code, w.events[r.tag], reason) && patience-- > 0) {
            take_reports(w);
            pg::wait(pg::Wait::delivery, sink().fd(), 10);
        }
        set_aside(w, r.tag, Fate::dead, std::move(reason));
    }
}

// The transaction is open meanwhile.
bool Publisher::Work::takes_too_long() const
{
    return judged_from != Clock::time_point{} && Clock::now() - judged_from > std::chrono::seconds(5);
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
