// The options of a sink that are ours, parsed and checked. A Kafka sink has others beside them: properties of its client
// library, which are kept in `properties` unparsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/http_options.hpp"

namespace outbox::core {

enum class Kind : std::uint8_t { kafka, http };  // the wrapper of its server: outbox_kafka, outbox_http
enum class Format : std::uint8_t { envelope, payload, debezium, cloudevents, cloudevents_structured, webhook };
enum class Start : std::uint8_t { earliest, latest };
enum class OnPoison : std::uint8_t { hold, skip };
enum class Timestamp : std::uint8_t { created, sent };

inline constexpr int kMaxBatchEvents = 10'000;
inline constexpr std::size_t kMaxBatchBytes = 16u << 20;
inline constexpr int kMaxLanes = 64;
// A crash repeats a batch at most, and over HTTP one is an answer each.
inline constexpr int kHttpBatchEvents = 200;

struct SinkOptions {
    SinkOptions() = default;
    explicit SinkOptions(Kind k) : kind(k) {
        if (k != Kind::http) return;
        format = Format::webhook;
        batch_size = kHttpBatchEvents;
    }

    Kind kind = Kind::kafka;
    std::string topic;  // template; empty: the default
    Format format = Format::envelope;
    std::string events = "*";  // comma-separated globs over aggregate_type/event_type
    int lanes = 1;
    Start start = Start::earliest;
    int batch_size = kMaxBatchEvents;  // events in flight per lane, at most
    int delivery_timeout_ms = 30'000;
    int stall_timeout_ms = 2'000;
    OnPoison on_poison = OnPoison::hold;
    Timestamp timestamp = Timestamp::created;
    std::string source;  // CloudEvents source; empty: /outbox/<database>
    std::string home;    // identity of the installation that may publish (set by the server)

    // Not options, but what a sink must know; filled by the relay.
    std::string database, sink;
    int lane = 0;         // -1: a replay, which has none
    bool gapless = true;  // false at a fault point alone: a test shows what it is there for
    bool alone = false;   // each event in a request of its own, sent once: a refusal fails nobody else. The caller keeps the order

    HttpOptions http;  // of a sink of that kind

    // Kafka: properties of the client library, canonical names (dots), server's first, then user mapping's.
    std::vector<std::pair<std::string, std::string>> properties;

    bool operator==(const SinkOptions&) const = default;
};

// True when `option` is one of ours (so not a property of the client library).
bool is_own_option(std::string_view option, Kind kind = Kind::kafka);
std::vector<std::string_view> own_options(Kind kind = Kind::kafka);  // those of a server that people set

// Sets one of our options, of those that options.kind has. Durations: a whole number with its unit ms, s, min or h (as PostgreSQL writes them). An error
// changes nothing.
OptionError set_option(SinkOptions& options, std::string_view option, std::string_view value);

// What the options of an HTTP sink's server do not show one by one: check_http_server(), and what does not go together with the others.
OptionError check_server(const SinkOptions& options);

// The canonical spelling of a library property, which may be written with `_` for `.`. Not for our own options, whose
// names keep the `_`.
std::string canonical_property(std::string_view option);

}  // namespace outbox::core
