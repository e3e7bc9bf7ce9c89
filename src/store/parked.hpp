// Parked events: what could not be delivered, and what waits behind it. C++ regime.
//
// The ordering key is (destination, aggregate_id). A row `retry` is tried again when it is due, a row `dead` waits for
// outbox.redrive or outbox.discard, a row `behind` waits for an earlier one of its key. Rows are taken with FOR UPDATE
// SKIP LOCKED: a transaction that sits on one blocks no lane.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/event.hpp"
#include "core/keygate.hpp"
#include "store/lanes.hpp"

namespace outbox::store {

enum class ParkReason : std::uint8_t { retry, dead, behind };

struct ToPark {
    std::int64_t id;
    std::string destination;
    ParkReason reason;
    std::string error;  // for behind: empty
};

// Copies the events from the log, in the relay's transaction.
void park(const Lane &lane, const std::vector<ToPark> &events);

// The keys that have a parked event; with `hold` false those with nothing but dead ones do not count.
void load_gate(const Lane &lane, bool hold, core::KeyGate &gate);

bool anything_parked(const Lane &lane);  // of this lane's sink, but for dead ones

// Inside a Transaction: locks and returns the events of this lane that are due, in id order, after making due what is no
// longer behind anything. Never one whose key has an earlier row that was not taken too. They live until the transaction ends.
std::vector<core::Event> take_due(const Lane &lane, bool hold, std::int64_t limit);
void unpark(const Lane &lane, const std::vector<std::int64_t> &ids);                          // delivered
void put_back(const Lane &lane, std::int64_t id, ParkReason reason, std::string_view error);  // with a growing pause

}  // namespace outbox::store
