// When an event is tried again that a sink refused for the event's own fault, and may yet take: a receiver may be mended meanwhile.
#pragma once

#include <cstdint>

namespace outbox::core {

// Seconds after the first attempt, the second and so on; the last one counts for all that come after it. Kafka refuses for ever:
// its sink makes no use of this.
inline constexpr std::int64_t kRefusalPauses[] = {5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600};

}  // namespace outbox::core
