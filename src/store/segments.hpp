// The ring of segments: turning it by age, truncating what every sink published long enough ago. C++ regime.
#pragma once

#include <cstdint>

namespace outbox::store {

inline constexpr int kSegments = 16;
inline int segment_of(std::int64_t turn) { return static_cast<int>(turn % kSegments); }

// One step of keeping house, each in a transaction of its own; one process of a database at a time does it.
// `retention_s`: how long a published event is kept.
void keep_segments(std::int64_t retention_s);

// The same at once, in the transaction of whoever asks for it (outbox.retention_run).
struct Kept {
    bool turned = false;
    int truncated = 0;
};
Kept keep_segments_now(std::int64_t retention_s);

}  // namespace outbox::store
