// What a relay counts, and how it comes into outbox.counters.
#include <algorithm>

#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "store/counters.hpp"
#include "worker/relay.hpp"

namespace outbox::worker {

using std::chrono::seconds;

// A crash loses the counts of so long; what was published is in outbox.progress, with each batch.
constexpr seconds kBetweenCounts{3};

std::int64_t unix_now_us()
{
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What the sink has acknowledged, whether or not it can be recorded then.
void Relay::count_delivered(const store::Batch &batch)
{
    std::int64_t now = unix_now_us(), delivered = 0, late = 0;
    for (std::size_t i = 0; i < batch.events.size(); i++) {
        if (fates_[i] != Fate::delivered)
            continue;
        counts_.delivered(batch.events[i], now);
        delivered++;
        late += i < batch.late;
    }
    if (delivered > 0)
        counts_.batch.add(delivered);
    counts_.count(counts_.late, late);
    counts_.count(counts_.producers, publisher_->failed_producers());
}

// Every few seconds, also while the sink is down, and when the process ends: a short transaction that nobody waits for. An error is
// no reason not to send.
void Relay::save_counts(bool at_end)
{
    if (!counts_.any || (!at_end && Clock::now() < save_counts_at_))
        return;
    save_counts_at_ = Clock::now() + kBetweenCounts;
    try {
        if (at_end)
            pg::abandon_transaction();  // the process may have been told to end in the middle of one
        pg::Transaction transaction;
        pg::commit_lazily();
        if (!extension_usable())
            return;
        if (store::add_counts(lane_, counts_)) {
            transaction.commit();
            counts_ = {};
        }
        count_error_.clear();
    } catch (const std::exception &error) {
        if (count_error_ != error.what())
            pg::log(pg::Level::warning, (std::string("outbox: what was counted could not be saved: ") + error.what()).c_str());
        count_error_ = error.what();
    }
}

}  // namespace outbox::worker
