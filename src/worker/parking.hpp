// Parked events of a lane: which keys they gate, putting new ones there, sending those that are due.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/backoff.hpp"
#include "core/counts.hpp"
#include "core/event.hpp"
#include "core/keygate.hpp"
#include "store/lanes.hpp"
#include "store/parked.hpp"
#include "store/sinks.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

std::int64_t unix_now_us();

class Parking {
public:
    explicit Parking(core::Counts &counts) : counts_(counts) {}

    // What is parked now. Inside a Transaction.
    void load(const store::Lane &lane, const store::SinkConfig &config);

    // A transaction failed: what was read in it may not be so. To be loaded again.
    void doubt() { gate_is_true_ = false; }

    // Nothing of this key may be sent: one of its events is parked, or its destination takes nothing for now.
    bool gated(std::string_view destination, const core::Event &event) const
    {
        return (!gate_.empty() && gate_.blocked(destination, event.aggregate_id)) || (!closed_.empty() && closed_.contains(destination));
    }

    // Parks what of `events` was neither delivered nor is open, in the relay's transaction.
    void park(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher);

    // Sends parked events that are due, in order, through a producer of their own, beside the live ones and not among them. A
    // topic that is still stuck holds the lane up for stall_timeout at most. Returns how many were delivered. A transaction
    // of its own, if there is anything to do.
    std::size_t pass();

    // Why the last pass found the sink down; empty: it did not.
    const std::string &outage() const { return outage_; }

    bool gone() const { return gone_; }  // and that it is no more

    // When there may be something to do.
    Clock::time_point next_pass() const { return anything_ || released_ ? next_ : Clock::time_point::max(); }

    bool close(std::chrono::milliseconds limit) { return publisher_ == nullptr || publisher_->close(limit); }

private:
    // A destination that took nothing when it was last tried. Its new events are parked without being sent, and some of its parked
    // ones test it from time to time.
    struct Closed {
        core::Backoff pause{1000, 30'000};
        Clock::time_point test_at{};
        Clock::time_point ask_at{};
        bool asked = false;  // since the last test: what the producer knows can be minutes old
        bool wrong = false;  // the sink says what is wrong with it
        int untested = 0;  // passes in which none of its events could be had
    };
    struct Tally {
        bool took_some = false, refused_some = false;
    };
    using Tallies = std::map<std::string, Tally, std::less<>>;

    bool hold() const { return options_.on_poison == core::OnPoison::hold; }
    Publisher &publisher();
    std::vector<core::Event> take();
    store::Schedule schedule() const;
    store::ParkReason after_refusal(std::int64_t &pause_ms) const;
    void settle(std::span<const core::Event> events, const std::vector<Fate> &fates);
    void tally(std::span<const core::Event> events, const std::vector<Fate> &fates, Publisher &publisher);
    void count(store::ParkReason why);
    void tell_dead(std::int64_t id, const std::string &why) const;
    void refresh();
    void readdress();
    store::Destinations closed() const;
    store::Destinations to_test();

    core::Counts &counts_;
    store::Lane lane_;
    core::SinkOptions options_;
    std::string name_, outage_;
    std::optional<std::string> addressed_;  // the route that the parked rows' destinations follow
    core::KeyGate gate_;
    std::map<std::string, Closed, std::less<>> closed_;
    std::unique_ptr<Publisher> publisher_;
    core::Backoff pause_{1000, 30'000};  // while the sink is down
    std::minstd_rand random_{std::random_device{}()};
    Clock::time_point next_{}, refresh_at_{}, quiet_refresh_at_{}, look_again_{};
    bool gone_ = false;
    bool anything_ = false;  // but for dead ones
    bool gate_is_true_ = false;
    bool released_ = false;  // something may be behind nothing any more
};

}  // namespace outbox::worker
