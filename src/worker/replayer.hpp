// A replay: a process of its own sends what a sink has published already again, beside the sink's relays and not among them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/backoff.hpp"
#include "state/shared.hpp"
#include "store/replays.hpp"
#include "store/sinks.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

class Replayer {
public:
    explicit Replayer(std::int32_t sink_id) : sink_id_(sink_id) {}
    void run();    // until there is nothing to replay
    bool close();  // false: a thread of a client library's is still there

private:
    bool step();  // false: the process is to end
    bool load();
    bool slice();
    store::Slice outcome(const store::Replay &replay);
    void record(const store::Replay &replay);
    std::size_t most() const;
    bool nothing_to_do();
    void failed(const std::string &why);
    bool worth_waiting(const std::string &complaint);
    void down();
    void well();
    void sleep();

    std::int32_t sink_id_;
    store::SinkConfig config_;
    std::unique_ptr<Publisher> publisher_;
    store::Batch batch_;
    std::vector<Fate> fates_;
    core::Backoff backoff_{500, 30'000};
    std::minstd_rand random_{std::random_device{}()};
    Clock::time_point next_slice_{}, back_off_until_{};
    std::uint64_t generation_ = 0;
    bool loaded_ = false, complains_ = false;
    bool waits_ = false;  // paused and the like
    std::string error_;
};

}  // namespace outbox::worker
