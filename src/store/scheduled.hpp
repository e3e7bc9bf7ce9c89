// Scheduled events: when one is due it moves to the log with a new id and is an ordinary event from then on. C++ regime.
#pragma once

#include <cstdint>

#include "core/front.hpp"

namespace outbox::store {

// Moves at most `limit` events that are due, in order of deliver_at, and says how many milliseconds from now to look again: 0 at once, at most
// `horizon_ms`. A transaction of its own. -1: the extension is gone.
std::int64_t move_due(core::Front &front, std::int64_t limit, std::int64_t horizon_ms);

}  // namespace outbox::store
