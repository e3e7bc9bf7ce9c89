// Scheduled events: when one is due it moves to the log with a new id and is an ordinary event from then on. C++ regime.
#pragma once

#include <cstdint>

namespace outbox::store {

// Moves at most `limit` events that are due, in order of deliver_at, and says how many milliseconds from now the next one
// is due: 0 at once, -1 none waits. A transaction of its own.
std::int64_t move_due(std::int64_t limit);

}  // namespace outbox::store
