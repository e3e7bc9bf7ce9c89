// Replays: what is to be sent to a sink again, and how far that has come. C++ regime.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store/log.hpp"
#include "store/sinks.hpp"

namespace outbox::store {

struct Replay {
    std::int64_t id = 0;
    std::int64_t since = 0, until = 0;  // timestamptz
    bool of_one_key = false;
    std::string aggregate_id;
    std::int64_t position = 0, last_id = 0;  // done up to here; the end
};

// The sink's oldest replay that is not over. False: there is none.
bool next_replay(std::int32_t sink_id, Replay &replay);

// The replay's next events, as the whole batch; batch.after.position: done up to here once they are sent. None but what its sink
// has published by now: what is pending, parked or discarded is left out. Looks at a bounded number of rows, so it may find none.
void read_replay(const Replay &replay, std::int32_t sink_id, const SinkConfig &config, Limits limits, Batch &batch);

struct Slice {
    std::int64_t position = 0;  // done up to here
    std::int64_t sent = 0, skipped = 0;
    std::string error;          // why something was skipped; empty: nothing was
};
// True: the replay has come to its end.
bool record_replay(const Replay &replay, const Slice &slice);

}  // namespace outbox::store
