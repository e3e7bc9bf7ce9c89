// Parked events of a lane: which keys they gate, putting new ones there, sending those that are due.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/event.hpp"
#include "core/keygate.hpp"
#include "store/lanes.hpp"
#include "store/sinks.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

class Parking {
public:
    // What is parked now. Inside a Transaction.
    void load(const store::Lane &lane, const store::SinkConfig &config);

    // Nothing of this key may be sent: one of its events is parked.
    bool gated(std::string_view destination, const core::Event &event) const { return !gate_.empty() && gate_.blocked(destination, event.aggregate_id); }

    // Parks what of `events` was neither delivered nor is open, in the relay's transaction.
    void park(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher);

    // Sends parked events that are due, in order, through a producer of their own, beside the live ones and not among them. A
    // topic that is still stuck holds the lane up for stall_timeout at most. Returns how many were delivered. A transaction
    // of its own, if there is anything to do.
    std::size_t pass();

    bool close(std::chrono::milliseconds limit) { return publisher_ == nullptr || publisher_->close(limit); }

private:
    bool hold() const { return options_.on_poison == core::OnPoison::hold; }
    void settle(const std::vector<core::Event> &events, const std::vector<Fate> &fates, Publisher::Result result);

    store::Lane lane_;
    core::SinkOptions options_;
    std::string name_, wrapper_;
    core::KeyGate gate_;
    std::unique_ptr<Publisher> publisher_;
    Clock::time_point next_{};
    bool anything_ = false;  // but for dead ones
};

}  // namespace outbox::worker
