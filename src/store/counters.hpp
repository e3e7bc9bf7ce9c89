// outbox.counters: what a lane's relays have counted. C++ regime.
#pragma once

#include "core/counts.hpp"
#include "store/lanes.hpp"

namespace outbox::store {

// Adds what was counted since the last time, in a Transaction of its own. Waits for nobody. False: somebody has the row, or it is
// not there (the sink was forgotten).
bool add_counts(const Lane &lane, const core::Counts &counts);

}  // namespace outbox::store
