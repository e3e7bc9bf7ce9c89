// Parked events: what could not be delivered, and what waits behind it. C++ regime.
//
// The ordering key is (destination, aggregate_id). A row `retry` is tried again when it is due, a row `dead` waits for
// outbox.redrive or outbox.discard, a row `behind` waits for an earlier one of its key, or for its destination while that takes
// nothing (it is closed: the relay knows). Rows are taken with FOR UPDATE SKIP LOCKED: a transaction that sits on one blocks no lane.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.hpp"
#include "core/keygate.hpp"
#include "core/route.hpp"
#include "store/lanes.hpp"

namespace outbox::store {

enum class ParkReason : std::uint8_t { retry, dead, behind };

struct ToPark {
    std::int64_t id;
    std::string destination;
    ParkReason reason;
    std::string error;  // for behind: empty
    std::int64_t pause_ms = 1000;  // for retry: until it is tried again, give or take a tenth
};

// Copies the events from the log, in the relay's transaction.
void park(const Lane &lane, const std::vector<ToPark> &events);

// Parked rows go where the sink sends their like now. False: somebody sits on some of them, which stay as they are.
bool readdress(const Lane &lane, const core::Route &route);

// The keys that have a parked event; with `hold` false those with nothing but dead ones do not count.
void load_gate(const Lane &lane, bool hold, core::KeyGate &gate);

bool anything_parked(const Lane &lane);  // of this lane's sink, but for dead ones

using Destinations = std::vector<std::string>;

// Destinations that many events wait for, and some of them were tried: such a destination was closed when its relay ended.
Destinations destinations_with_piles(const Lane &lane);

// Makes due what is behind nothing any more, but in closed destinations.
void promote(const Lane &lane, bool hold, const Destinations &closed);

// Inside a Transaction: locks and returns the events of this lane that are due, in id order; of closed destinations none, but the
// first few of those to be tested, due or not. Never one whose key has an earlier row that was not taken too. They live until the
// transaction ends.
std::vector<core::Event> take_due(const Lane &lane, bool hold, std::int64_t limit, const Destinations &closed, const Destinations &to_test);

using Ids = std::vector<std::int64_t>;
// Events that were delivered go. What waits behind them and behind nothing else becomes due; the keys of which nothing is left are free.
struct Key {
    std::string destination, aggregate_id;
};
std::vector<Key> unpark(const Lane &lane, bool hold, const Ids &ids);
void put_back(const Lane &lane, const Ids &ids, ParkReason reason, std::string_view error);  // with a growing pause

// For events that were refused for their own fault and may yet be taken: how often, and how long after each attempt but the last.
struct Schedule {
    int attempts;
    Ids pauses_ms;
};
Ids put_back_refused(const Lane &lane, const Ids &ids, std::string_view error, const Schedule &schedule);  // those that are dead now

}  // namespace outbox::store
