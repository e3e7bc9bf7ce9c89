#include "core/options.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>

#include "core/glob.hpp"
#include "core/text.hpp"
#include "core/topic.hpp"

namespace outbox::core {

namespace {

constexpr std::int64_t kSecond = 1'000, kMinute = 60 * kSecond, kHour = 60 * kMinute;

OptionError bad_value(std::string_view option, std::string_view value, std::string hint) {
    return {std::string(option),
            "invalid value for option \"" + std::string(option) + "\": " + quote_for_message(value), std::move(hint)};
}

template <typename Enum>
struct Named {
    const char* name;
    Enum value;
};

constexpr Named<Format> kFormats[] = {{"envelope", Format::envelope},
                                      {"payload", Format::payload},
                                      {"debezium", Format::debezium},
                                      {"cloudevents", Format::cloudevents},
                                      {"cloudevents_structured", Format::cloudevents_structured}};
constexpr Named<Start> kStarts[] = {{"earliest", Start::earliest}, {"latest", Start::latest}};
constexpr Named<OnPoison> kOnPoisons[] = {{"hold", OnPoison::hold}, {"skip", OnPoison::skip}};
constexpr Named<Timestamp> kTimestamps[] = {{"created", Timestamp::created}, {"sent", Timestamp::sent}};

template <typename Enum, std::size_t Count>
OptionError set_name(Enum& to, const Named<Enum> (&names)[Count], std::string_view option, std::string_view value) {
    std::string hint = "Valid values are ";
    for (const Named<Enum>& named : names) {
        if (value == named.name) {
            to = named.value;
            return {};
        }
        const bool first = &named == std::begin(names), last = &named + 1 == std::end(names);
        hint += first ? "" : last ? " and " : ", ";
        hint += named.name;
    }
    return bad_value(option, value, hint + ".");
}

// Digits and nothing else, up to `rest`.
std::optional<std::int64_t> read_number(std::string_view text, std::string_view& rest) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    if (text.empty() || text[0] < '0' || text[0] > '9') return {};
    const auto [at, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{}) return {};
    rest = {at, static_cast<std::size_t>(end - at)};
    return number;
}

OptionError set_count(int& to, int most, std::string_view option, std::string_view value) {
    std::string_view rest;
    const auto number = read_number(value, rest);
    if (!number || !rest.empty() || *number < 1 || *number > most) {
        return bad_value(option, value, "Give a whole number from 1 to " + std::to_string(most) + ".");
    }
    to = static_cast<int>(*number);
    return {};
}

OptionError set_duration(int& to_ms, std::int64_t least_ms, std::int64_t most_ms, const char* range,
                         std::string_view option, std::string_view value) {
    struct Unit {
        std::string_view name;
        std::int64_t ms;
    };
    constexpr Unit units[] = {{"ms", 1}, {"s", kSecond}, {"min", kMinute}, {"h", kHour}};
    std::string_view rest;
    const auto number = read_number(value, rest);
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    for (const Unit& unit : units) {
        if (!number || rest != unit.name) continue;
        if (*number > most_ms / unit.ms || *number * unit.ms < least_ms) {
            return bad_value(option, value, std::string("It may be ") + range + ".");
        }
        to_ms = static_cast<int>(*number * unit.ms);
        return {};
    }
    return bad_value(option, value, "Give a whole number and its unit (ms, s, min or h), for example 500ms or 30s.");
}

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

OptionError set_format(SinkOptions& o, std::string_view v) { return set_name(o.format, kFormats, "format", v); }
OptionError set_lanes(SinkOptions& o, std::string_view v) { return set_count(o.lanes, kMaxLanes, "lanes", v); }
OptionError set_start(SinkOptions& o, std::string_view v) { return set_name(o.start, kStarts, "start", v); }
OptionError set_batch(SinkOptions& o, std::string_view v) {
    return set_count(o.batch_size, kMaxBatchEvents, "batch_size", v);
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
};

constexpr OwnOption kOwnOptions[] = {
    {"topic", set_topic},
    {"format", set_format},
    {"events", set_events},
    {"lanes", set_lanes},
    {"start", set_start},
    {"batch_size", set_batch},
    {"delivery_timeout", set_delivery},
    {"stall_timeout", set_stall},
    {"on_poison", set_on_poison},
    {"timestamp", set_timestamp},
    {"source", set_source},
    {"home", set_home},
};

const OwnOption* find_own(std::string_view name) {
    for (const OwnOption& option : kOwnOptions) {
        if (option.name == name) return &option;
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

std::span<const std::string_view> own_options() {
    static constexpr auto names = [] {
        std::array<std::string_view, std::size(kOwnOptions) - 1> all;  // but for `home`, the last
        for (std::size_t i = 0; i < all.size(); i++) all[i] = kOwnOptions[i].name;
        return all;
    }();
    return names;
}

bool is_own_option(std::string_view option) { return find_own(option) != nullptr; }

OptionError set_option(SinkOptions& options, std::string_view option, std::string_view value) {
    const OwnOption* own = find_own(option);
    if (own == nullptr)
        return {option.empty() ? "?" : std::string(option), "unknown option " + quote_for_message(option), {}};
    return own->set(options, value);
}

std::string canonical_property(std::string_view option) {
    std::string name = dotted(option);
    for (const std::string_view underscored : kUnderscored) {
        if (dotted(underscored) == name) return std::string(underscored);
    }
    return name;
}

}  // namespace outbox::core
