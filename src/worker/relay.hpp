// A relay: one per sink and lane. relay.cpp has the publish loop, relay_outage.cpp what it does while the sink is down,
// relay_upkeep.cpp what else keeps it going, relay_counts.cpp what it counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/backoff.hpp"
#include "core/counts.hpp"
#include "core/front.hpp"
#include "pg/session.hpp"
#include "state/shared.hpp"
#include "store/lanes.hpp"
#include "store/log.hpp"
#include "store/sinks.hpp"
#include "worker/parking.hpp"
#include "worker/publisher.hpp"

namespace outbox::worker {

class Relay {
public:
    explicit Relay(const shared::Assignment &assignment) { lane_.sink_id = assignment.sink_id; lane_.lane = assignment.lane; }
    void run();
    bool close();  // false: a thread of a client library's is still there
    void save_counts(bool at_end);

private:
    enum class Next { again, gather, wait, end };

    enum class Load { done, busy, gone };
    Load load();
    Next step();
    void notice_changes();
    void send_parked();
    Next publish_pass();
    Next probe_pass();
    Next park_first(const store::Batch &batch, pg::Transaction &transaction);
    void record_probe();
    void take_probe_fates();
    void disable();
    void up_again();
    void show_outage_of_parked();
    void settle_probe(std::chrono::milliseconds grace);
    void hold_for_test();
    store::Limits limits() const { return {static_cast<std::size_t>(config_.options.batch_size)}; }
    void read();
    void read_ahead();
    void arrange(const store::Batch &batch);
    bool fix(const store::Batch &batch, std::size_t count);
    bool several_a_request() const { return !progress_.requests.empty() || config_.options.http.batch > 1; }
    Together first_request(const store::Batch &batch) const;
    void keep_requests(const store::Batch &batch, std::size_t done, store::Progress &progress) const;
    void make_durable(const store::Batch &batch);
    void skip_ahead(const store::Batch &batch);
    void record(const store::Progress &progress, std::int64_t delivered);
    void recorded(const store::Progress &progress, std::int64_t delivered);
    std::size_t done_in_order(const store::Batch &batch);
    void remember_ahead(const store::Batch &batch, std::size_t done);
    void finish_batch(const store::Batch &batch, Publisher::Result result);
    void count_delivered(const store::Batch &batch);
    void keep_house();
    void housekeeping();
    void failed(const char *what);
    void clear_error();
    void enter(shared::State state);
    void say_whether_it_sends(shared::State before);
    void outage(const Publisher &publisher);
    bool worth_waiting(const std::string &complaint);
    void sleep(Next next);
    void awake();
    bool extension_usable();
    void idle_until_updated(const char *version);
    bool extension_gone();

    store::Lane lane_;
    store::Progress progress_;              // batch: the newest recorded; position and seen may be ahead of what is recorded
    std::optional<store::Cap> cap_;
    store::SinkConfig config_;
    store::Log log_;
    store::Thinning thinning_;
    core::Front scheduled_front_, claims_front_;
    std::unique_ptr<Publisher> publisher_;
    core::Counts counts_;  // since they were last saved
    Parking parking_{counts_};
    store::Batch batches_[2];
    store::Batch *batch_ = &batches_[0], *next_ = &batches_[1];  // next_: read while batch_ was on its way, if next_read_
    bool next_read_ = false;
    std::vector<Fate> fates_;
    std::unordered_set<std::int64_t> ahead_;  // delivered beyond a gap: left out when the batch is read again
    std::int64_t uncounted_ = 0;              // of these, not in the lane's `published` yet
    std::vector<Together> together_;          // of batch_, what belongs in one request
    std::size_t sendable_ = 0;                // so many of batch_ may be sent in this pass
    std::vector<bool> fixed_;                 // of batch_, what is in a request that was fixed, or need not be
    std::vector<std::vector<std::int64_t>> requests_;  // those of progress_ that still hold
    std::int64_t recorded_position_ = 0;
    std::uint64_t recorded_xmin_ = 0;
    Clock::time_point recorded_at_ = Clock::now(), housekeeping_at_{}, scheduled_at_{}, scheduled_looked_at_{}, claims_at_{}, full_look_at_ = Clock::now(), back_off_until_{}, extension_seen_at_{}, save_counts_at_{};
    core::Backoff backoff_{500, 30'000};
    std::minstd_rand random_{std::random_device{}()};
    std::uint64_t generation_ = 0;
    bool loaded_ = false, down_ = false, asleep_ = false;
    bool busy_ = false;                     // something was written since we looked at scheduled events
    bool arrived_ = false;                  // this lane has come to the cap, on disk
    shared::State state_ = shared::State::starting;
    std::string error_, house_error_, parked_error_, count_error_;
    std::string gone_;                      // the sink has just said that it is no more, in these words: to be recorded
    bool error_inherited_ = true;  // the slot may still show what was wrong with the process before
};

}  // namespace outbox::worker
