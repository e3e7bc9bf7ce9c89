// The sinks of this database: foreign servers and what outbox.sinks remembers of their names. C++ regime.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.hpp"

namespace outbox::store {

// This installation, as the option `home` writes it.
std::string home();

// ---- DDL ----------------------------------------------------------------------------------------------------------------

// Brings outbox.sinks, lanes and progress in line with the foreign servers, in the transaction of the DDL:
// lanes for new sinks (at this snapshot), positions for names that come back, dropped_at for what is gone.
void reconcile();
void rename_sink(std::string_view from, std::string_view to);
// Throws unless the sink has neither pending nor parked events.
void check_droppable(std::string_view sink);
// True when there is a sink that is not in line (a cheap look for the sql_drop trigger).
bool dropped_sinks_exist();

void pause(std::string_view sink);
void resume(std::string_view sink);
void forget(std::string_view sink);
void forget_sink(std::int32_t sink_id);  // its row in outbox.sinks is locked

// ---- relays and scouts ----------------------------------------------------------------------------------------------------

struct SinkConfig {
    bool exists = false;
    std::string name;
    bool paused = false;
    std::string halted;        // why; empty: not halted
    std::string gone;          // its endpoint is no more, and what follows from it; empty: none said so
    std::string error;         // an option that cannot be used; empty: none
    std::int32_t lanes = 0;    // in force
    std::int64_t floor = 0;
    core::SinkOptions options;
};
SinkConfig load_sink(std::int32_t sink_id);
// The endpoint at that url is no more: load_sink says so until the sink has another one, or is resumed.
void disable(std::int32_t sink_id, std::string_view url, std::string_view why);
std::int32_t sink_id_of(std::string_view name);  // throws when there is no such sink

struct LaneId {
    std::int32_t sink_id = 0;
    std::int32_t lane = 0;
};
// After pg_upgrade, which changes the cluster's identity and nothing else: makes servers at home that were at home here before.
// Returns how many.
std::size_t adopt_after_upgrade();
// The lanes that should have a relay.
std::vector<LaneId> wanted_lanes();

}  // namespace outbox::store
