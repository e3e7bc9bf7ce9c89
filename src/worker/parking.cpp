#include "worker/parking.hpp"

#include <cstdio>

#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "store/parked.hpp"

namespace outbox::worker {

using std::chrono::seconds;

constexpr std::int64_t kBatch = 1'000;
constexpr seconds kBetweenPasses{1};

void Parking::load(const store::Lane &lane, const store::SinkConfig &config)
{
    if (!(config.options == options_))
        publisher_.reset();
    lane_ = lane;
    options_ = config.options;
    name_ = config.name;
    wrapper_ = config.wrapper;
    store::load_gate(lane_, hold(), gate_);
    anything_ = store::anything_parked(lane_);
    next_ = {};
}

void Parking::park(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher)
{
    std::vector<store::ToPark> parked;
    for (std::size_t i = 0; i < events.size(); i++) {
        if (fates[i] == Fate::delivered || fates[i] == Fate::open)
            continue;
        store::ParkReason reason = fates[i] == Fate::dead       ? store::ParkReason::dead
                                   : fates[i] == Fate::deferred ? store::ParkReason::retry
                                                                : store::ParkReason::behind;
        std::string destination(publisher.destination(events[i]));
        if (reason != store::ParkReason::dead || hold())
            gate_.block(destination, events[i].aggregate_id);
        parked.push_back({events[i].id, std::move(destination), reason, publisher.reason(i)});
    }
    if (parked.empty())
        return;
    store::park(lane_, parked);
    anything_ = true;
    char line[400];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d parked %zu events, the first with id %lld: %s", name_.c_str(), lane_.lane,
             parked.size(), static_cast<long long>(parked[0].id), parked[0].error.c_str());
    pg::log(pg::Level::warning, line);
}

std::size_t Parking::pass()
{
    if (!anything_ || Clock::now() < next_)
        return 0;
    next_ = Clock::now() + kBetweenPasses;
    pg::Transaction transaction;
    if (!pg::lock_extension().present)
        return 0;
    std::vector<core::Event> events = store::take_due(lane_, hold(), kBatch);
    if (events.empty()) {
        anything_ = store::anything_parked(lane_);
        transaction.commit();
        return 0;
    }
    if (publisher_ == nullptr) {
        core::SinkOptions options = options_;
        options.delivery_timeout_ms = options.stall_timeout_ms;
        publisher_ = std::make_unique<Publisher>(options, wrapper_);
    }
    std::vector<Fate> fates;
    pg::HoldInterrupts held;  // to the commit: what is acknowledged in time is recorded
    Publisher::Result result = publisher_->publish(events, fates, [](const core::Event &) { return false; });
    settle(events, fates, result);
    std::vector<std::int64_t> delivered;
    for (std::size_t i = 0; i < events.size(); i++)
        if (fates[i] == Fate::delivered)
            delivered.push_back(events[i].id);
    store::unpark(lane_, delivered);
    if (!delivered.empty())
        store::load_gate(lane_, hold(), gate_);
    transaction.commit();
    if (delivered.size() == events.size())
        next_ = {};  // more may be due
    return delivered.size();
}

void Parking::settle(const std::vector<core::Event> &events, const std::vector<Fate> &fates, Publisher::Result result)
{
    for (std::size_t i = 0; i < events.size(); i++) {
        std::int64_t id = events[i].id;
        switch (fates[i]) {
        case Fate::delivered: break;
        case Fate::gated: store::put_back(lane_, id, store::ParkReason::behind, {}); break;
        case Fate::dead: store::put_back(lane_, id, store::ParkReason::dead, publisher_->reason(i)); break;
        case Fate::deferred: store::put_back(lane_, id, store::ParkReason::retry, publisher_->reason(i)); break;
        case Fate::open:
            if (result != Publisher::Result::stopped)
                store::put_back(lane_, id, store::ParkReason::retry, publisher_->error());
        }
    }
}

}  // namespace outbox::worker
