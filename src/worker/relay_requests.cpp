// Sinks that take several events in a request (option `batch`): which events go together is recorded before their first attempt, with the
// lane's progress. So a request that is sent again, after an outage, a time-out or a crash, has the same events and with them the same id.
// One that goes by itself is recorded, too, or it could come again together with others.
#include <algorithm>
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

// Finds the requests that were fixed before in `batch`: what of it goes together, what is fixed at all, and how much may be sent now.
void Relay::arrange(const store::Batch &batch)
{
    const bool has_place = config_.options.kind == core::Kind::http && config_.options.format == core::Format::webhook;
    sendable_ = batch.events.size();
    together_.clear();
    requests_.clear();
    fixed_.assign(batch.events.size(), !has_place);
    if (!has_place || progress_.requests.empty())
        return;

    std::unordered_map<std::int64_t, std::size_t> index;
    for (std::size_t i = 0; i < batch.events.size(); i++)
        index.emplace(batch.events[i].id, i);
    struct Found {
        const std::vector<std::int64_t> *ids;
        Together which;
        bool whole() const { return which.size() == ids->size(); }
    };
    std::vector<Found> found;
    for (const auto &ids : progress_.requests) {
        Together which;
        bool partly_done = false;
        for (std::int64_t id : ids) {
            if (auto at = index.find(id); at != index.end())
                which.push_back(at->second);
            partly_done |= ahead_.contains(id);
        }
        std::sort(which.begin(), which.end());
        if (which.empty() && (batch.more || partly_done))
            requests_.push_back(ids);  // beyond what was read, or delivered and not recorded yet
        else if (!which.empty() && !partly_done && !would_overtake(batch, which))
            found.push_back({&ids, std::move(which)});
    }

    // The rest of a request may be beyond what was read, since late events came before it: it waits, and all behind its first event.
    for (bool again = true; again;) {
        again = false;
        for (const Found &request : found)
            if (request.which.front() < sendable_ && (!request.whole() || request.which.back() >= sendable_)) {
                sendable_ = request.which.front();
                again = true;
            }
    }
    if (sendable_ == 0) {  // it cannot be had whole any more
        sendable_ = batch.events.size();
        std::erase_if(found, [](const Found &request) { return !request.whole(); });
    }
    for (Found &request : found) {
        requests_.push_back(*request.ids);
        for (std::size_t i : request.which)
            fixed_[i] = true;
        if (request.which.front() < sendable_ && request.whole() && request.which.size() > 1)
            together_.push_back(std::move(request.which));
    }
}

// After arrange(): puts together what is new among the first `count` events. True: something was, is recorded now in the transaction that
// is open, and must be committed before anything of it is sent.
bool Relay::fix(const store::Batch &batch, std::size_t count)
{
    const auto most = static_cast<std::size_t>(config_.options.http.batch);
    if (most == 1)
        return false;
    const std::size_t fixed_before = requests_.size();
    std::vector<std::int64_t> ids;
    std::size_t bytes = 0;
    auto close = [&] {
        if (!ids.empty())
            requests_.push_back(std::exchange(ids, {}));
        bytes = 0;
    };
    for (std::size_t i = 0; i < count; i++) {
        const core::Event &e = batch.events[i];
        if (fixed_[i])
            close();  // what is before it and what is behind it do not go together, or that would overtake it
        if (fixed_[i] || parking_.gated(publisher_->destination(e), e))
            continue;
        // As base64 if it is bytes, and some for what stands around it.
        std::size_t size = (e.payload_is_json ? e.payload.size() : e.payload.size() / 3 * 4 + 4) + e.headers.size() + e.aggregate_id.size() + 400;
        if (ids.size() == most || bytes + size > kRequestBytes)
            close();
        ids.push_back(e.id);
        bytes += size;
    }
    close();
    if (requests_.size() == fixed_before)
        return false;
    store::Progress progress = progress_;
    progress.batch++;
    progress.requests = std::move(requests_);
    record(progress, 0);
    return true;
}

// What goes with the first event of the batch, which may be sent.
Together Relay::first_request(const store::Batch &batch) const
{
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
