#include "core/options.hpp"

#include <iterator>

#include "core/glob.hpp"
#include "core/option_values.hpp"
#include "core/text.hpp"
#include "core/topic.hpp"

namespace outbox::core {

namespace {

constexpr Named<Format> kFormats[] = {{"envelope", Format::envelope},
                                      {"payload", Format::payload},
                                      {"debezium", Format::debezium},
                                      {"cloudevents", Format::cloudevents},
                                      {"cloudevents_structured", Format::cloudevents_structured}};
constexpr Named<Format> kHttpFormats[] = {{"webhook", Format::webhook},
                                          {"cloudevents", Format::cloudevents},
                                          {"cloudevents_structured", Format::cloudevents_structured}};
constexpr Named<Start> kStarts[] = {{"earliest", Start::earliest}, {"latest", Start::latest}};
constexpr Named<OnPoison> kOnPoisons[] = {{"hold", OnPoison::hold}, {"skip", OnPoison::skip}};
constexpr Named<Timestamp> kTimestamps[] = {{"created", Timestamp::created}, {"sent", Timestamp::sent}};

OptionError set_topic(SinkOptions& options, std::string_view value) {
    TopicTemplate topics;
    OptionError error{"topic", {}, {}};
    if (value.empty()) return bad_value("topic", value, "Leave the option out for the default.");
    if (!topics.parse(value, error.message, error.hint)) return error;
    options.topic = value;
    return {};
}

OptionError set_events(SinkOptions& options, std::string_view value) {
    EventFilter filter;
    OptionError error{"events", {}, {}};
    if (!filter.parse(value, error.message, error.hint)) return error;
    options.events = value;
    return {};
}

// A URI reference, as CloudEvents demands. Only its characters are checked.
OptionError set_source(SinkOptions& options, std::string_view value) {
    constexpr std::string_view never = "\"<>\\^`{|}";
    bool good = !value.empty();
    for (const char c : value) good = good && c > ' ' && c < '\x7f' && never.find(c) == std::string_view::npos;
    if (!good)
        return bad_value("source", value, "Give a URI reference, for example /payments or https://example.com/shop.");
    options.source = value;
    return {};
}

OptionError set_home(SinkOptions& options, std::string_view value) {
    options.home = value;
    return {};
}

OptionError set_format(SinkOptions& o, std::string_view v) {
    return o.kind == Kind::http ? set_name(o.format, kHttpFormats, "format", v) : set_name(o.format, kFormats, "format", v);
}
OptionError set_lanes(SinkOptions& o, std::string_view v) { return set_count(o.lanes, 1, kMaxLanes, "lanes", v); }
OptionError set_start(SinkOptions& o, std::string_view v) { return set_name(o.start, kStarts, "start", v); }
OptionError set_batch(SinkOptions& o, std::string_view v) {
    return set_count(o.batch_size, 1, kMaxBatchEvents, "batch_size", v);
}
OptionError set_delivery(SinkOptions& o, std::string_view v) {
    return set_duration(o.delivery_timeout_ms, 100, 24 * kHour, "100ms to 24h", "delivery_timeout", v);
}
OptionError set_stall(SinkOptions& o, std::string_view v) {
    return set_duration(o.stall_timeout_ms, 10, kHour, "10ms to 1h", "stall_timeout", v);
}
OptionError set_on_poison(SinkOptions& o, std::string_view v) {
    return set_name(o.on_poison, kOnPoisons, "on_poison", v);
}
OptionError set_timestamp(SinkOptions& o, std::string_view v) {
    return set_name(o.timestamp, kTimestamps, "timestamp", v);
}

struct OwnOption {
    std::string_view name;
    OptionError (*set)(SinkOptions&, std::string_view);
    bool kafka_only = false;
};

constexpr OwnOption kOwnOptions[] = {
    {"topic", set_topic, true},
    {"format", set_format},
    {"events", set_events},
    {"lanes", set_lanes},
    {"start", set_start},
    {"batch_size", set_batch},
    {"delivery_timeout", set_delivery},
    {"stall_timeout", set_stall},
    {"on_poison", set_on_poison},
    {"timestamp", set_timestamp, true},
    {"source", set_source},
    {"home", set_home},
};

const OwnOption* find_own(std::string_view name, Kind kind) {
    for (const OwnOption& option : kOwnOptions) {
        if (option.name == name && (kind == Kind::kafka || !option.kafka_only)) return &option;
    }
    return nullptr;
}

// The only properties of librdkafka whose names have underscores (2.0.2 to 2.14): read back from the dots.
constexpr std::string_view kUnderscored[] = {
    "background_event_cb",
    "closesocket_cb",
    "connect_cb",
    "consume_cb",
    "default_topic_conf",
    "dr_cb",
    "dr_msg_cb",
    "enabled_events",
    "error_cb",
    "log_cb",
    "log_level",
    "msg_order_cmp",
    "oauthbearer_token_refresh_cb",
    "offset_commit_cb",
    "open_cb",
    "partitioner_cb",
    "rebalance_cb",
    "resolve_cb",
    "socket_cb",
    "ssl.certificate.verify_cb",
    "ssl_ca",
    "ssl_certificate",
    "ssl_engine_callback_data",
    "ssl_key",
    "stats_cb",
    "throttle_cb",
};

std::string dotted(std::string_view name) {
    std::string text(name);
    for (char& c : text) c = c == '_' ? '.' : c;
    return text;
}

}  // namespace

std::vector<std::string_view> own_options(Kind kind) {
    std::vector<std::string_view> names;
    for (const OwnOption& option : kOwnOptions) {
        if (option.set != set_home && (kind == Kind::kafka || !option.kafka_only)) names.push_back(option.name);
    }
    if (kind == Kind::http) {
        for (const std::string_view name : http_server_options()) names.push_back(name);
    }
    return names;
}

bool is_own_option(std::string_view option, Kind kind) {
    return find_own(option, kind) != nullptr || (kind == Kind::http && is_http_option(option));
}

OptionError set_option(SinkOptions& options, std::string_view option, std::string_view value) {
    if (const OwnOption* own = find_own(option, options.kind)) return own->set(options, value);
    if (options.kind == Kind::http && is_http_option(option)) return set_http_option(options.http, option, value);
    return {option.empty() ? "?" : std::string(option), "unknown option " + quote_for_message(option), {}};
}

OptionError check_server(const SinkOptions& o) {
    if (OptionError error = check_http_server(o.http); !error.message.empty()) return error;
    if (o.http.batch > 1 && o.format != Format::webhook)
        return {"batch", "option \"batch\" needs the format webhook", "Leave out the option format, or batch."};
    return {};
}

std::string canonical_property(std::string_view option) {
    std::string name = dotted(option);
    for (const std::string_view underscored : kUnderscored) {
        if (dotted(underscored) == name) return std::string(underscored);
    }
    return name;
}

}  // namespace outbox::core
