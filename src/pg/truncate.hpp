// Truncating a segment without making a writer wait. C++ regime.
#pragma once

namespace outbox::pg {

// The strongest lock on the partition, at once or not at all.
bool lock_segment_now(int segment);
void truncate_segment(int segment);

}  // namespace outbox::pg
