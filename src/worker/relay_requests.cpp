// Sinks that take several events in a request (option `batch`): which events go together is recorded before their first attempt, with the
// lane's progress. So a request that is sent again, after an outage, a time-out or a crash, has the same events and with them the same id.
// One that goes by itself is recorded, too, or it could come again together with others.
#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "worker/relay.hpp"

namespace outbox::worker {

constexpr std::size_t kRequestBytes = 1 << 20;  // what many receivers take at most

// An event has come between two of a request, and is of the key of a later one: that must not go before it.
static bool would_overtake(const store::Batch &batch, const Together &which)
{
    for (std::size_t w = 0; w + 1 < which.size(); w++)
        for (std::size_t i = which[w] + 1; i < which[w + 1]; i++)
            for (std::size_t later = w + 1; later < which.size(); later++)
                if (!core::is_null(batch.events[i].aggregate_id) && batch.events[i].aggregate_id == batch.events[which[later]].aggregate_id)
                    return true;
    return false;
}

// Finds what belongs together of `batch` and, with `fix_new`, puts together what was not fixed before. `fixed`: that is recorded now in
// the transaction that is open, and must be committed before anything of it is sent.
Relay::Arranged Relay::arrange(const store::Batch &batch, bool fix_new)
{
    together_.clear();
    sendable_ = batch.events.size();
    const auto most = static_cast<std::size_t>(config_.options.http.batch);
    const bool has_place = config_.options.kind == core::Kind::http && config_.options.format == core::Format::webhook;
    if (!has_place || (progress_.requests.empty() && (most == 1 || !fix_new)))
        return Arranged::done;

    std::unordered_map<std::int64_t, std::size_t> index;
    for (std::size_t i = 0; i < batch.events.size(); i++)
        index.emplace(batch.events[i].id, i);
    std::vector<std::pair<Together, bool>> known;  // and whether all of it is here
    std::vector<std::vector<std::int64_t>> elsewhere;
    store::Progress progress = progress_;
    std::erase_if(progress.requests, [&](std::vector<std::int64_t> &ids) {
        Together which;
        bool partly_done = false;
        for (std::int64_t id : ids) {
            if (auto at = index.find(id); at != index.end())
                which.push_back(at->second);
            partly_done |= ahead_.contains(id);
        }
        if (which.empty() && (batch.more || partly_done))
            elsewhere.push_back(std::move(ids));  // beyond what was read, or delivered and not recorded yet
        std::sort(which.begin(), which.end());
        if (which.empty() || partly_done || would_overtake(batch, which))
            return true;
        known.emplace_back(which, which.size() == ids.size());
        return false;
    });

    // The rest of a request may be beyond what was read, since late events came before it: it waits, and all behind its first event.
    for (bool again = true; again;) {
        again = false;
        for (const auto &[which, whole] : known)
            if (which.front() < sendable_ && (!whole || which.back() >= sendable_)) {
                sendable_ = which.front();
                again = true;
            }
    }
    if (sendable_ == 0) {  // it cannot be had whole any more
        sendable_ = batch.events.size();
        for (std::size_t r = known.size(); r-- > 0;)
            if (!known[r].second) {
                known.erase(known.begin() + static_cast<std::ptrdiff_t>(r));
                progress.requests.erase(progress.requests.begin() + static_cast<std::ptrdiff_t>(r));
            }
    }

    std::vector<bool> taken(batch.events.size());
    for (auto &[which, whole] : known) {
        for (std::size_t i : which)
            taken[i] = true;
        if (which.front() < sendable_ && which.size() > 1)
            together_.push_back(std::move(which));
    }
    if (most == 1 || !fix_new)
        return Arranged::done;

    std::move(elsewhere.begin(), elsewhere.end(), std::back_inserter(progress.requests));
    const std::size_t known_before = progress.requests.size();
    Together which;
    std::size_t bytes = 0;
    auto close = [&] {
        if (which.empty())
            return;
        auto &ids = progress.requests.emplace_back();
        for (std::size_t i : which)
            ids.push_back(batch.events[i].id);
        which.clear();
        bytes = 0;
    };
    for (std::size_t i = 0; i < sendable_; i++) {
        const core::Event &e = batch.events[i];
        if (taken[i]) {  // what is before it and what is behind it do not go together, or that would overtake it
            close();
            continue;
        }
        if (parking_.gated(publisher_->destination(e), e))
            continue;
        // As base64 if it is bytes, and some for what stands around it.
        std::size_t size = (e.payload_is_json ? e.payload.size() : e.payload.size() / 3 * 4 + 4) + e.headers.size() + e.aggregate_id.size() + 400;
        if (which.size() == most || bytes + size > kRequestBytes)
            close();
        which.push_back(i);
        bytes += size;
    }
    close();
    if (progress.requests.size() == known_before)
        return Arranged::done;
    progress.batch++;
    record(progress, 0);
    return Arranged::fixed;
}

bool Relay::is_fixed(const core::Event &event) const
{
    return std::any_of(progress_.requests.begin(), progress_.requests.end(),
                       [&](const std::vector<std::int64_t> &ids) { return std::find(ids.begin(), ids.end(), event.id) != ids.end(); });
}

// By itself.
void Relay::fix(const core::Event &event)
{
    store::Progress progress = progress_;
    progress.batch++;
    progress.requests.push_back({event.id});
    record(progress, 0);
}

// What goes with the first event of the batch, which may be sent.
Together Relay::first_request(const store::Batch &batch)
{
    arrange(batch, false);
    for (const Together &which : together_)
        if (which.front() == 0 && std::none_of(which.begin(), which.end(), [&](std::size_t i) {
                return parking_.gated(publisher_->destination(batch.events[i]), batch.events[i]);
            }))
            return which;
    return {0};
}

// Of the requests that were fixed, those of which nothing is done yet.
void Relay::keep_requests(const store::Batch &batch, std::size_t done, store::Progress &progress) const
{
    progress.requests = progress_.requests;
    if (progress.requests.empty())
        return;
    std::unordered_set<std::int64_t> settled;
    for (std::size_t i = 0; i < done; i++)
        settled.insert(batch.events[i].id);
    std::erase_if(progress.requests, [&](const std::vector<std::int64_t> &ids) {
        return std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) { return settled.contains(id); });
    });
}

}  // namespace outbox::worker
