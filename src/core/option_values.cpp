#include "core/option_values.hpp"

#include <charconv>
#include <optional>

#include "core/text.hpp"

namespace outbox::core {

namespace {

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

}  // namespace

OptionError bad_value(std::string_view option, std::string_view value, std::string hint) {
    return {std::string(option),
            "invalid value for option \"" + std::string(option) + "\": " + quote_for_message(value), std::move(hint)};
}

OptionError set_count(int& to, int least, int most, std::string_view option, std::string_view value) {
    std::string_view rest;
    const auto number = read_number(value, rest);
    if (!number || !rest.empty() || *number < least || *number > most) {
        return bad_value(option, value, "Give a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ".");
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

OptionError set_boolean(bool& to, std::string_view option, std::string_view value) {
    for (const std::string_view yes : {"true", "on", "yes", "1"}) {
        if (value == yes) return to = true, OptionError{};
    }
    for (const std::string_view no : {"false", "off", "no", "0"}) {
        if (value == no) return to = false, OptionError{};
    }
    return bad_value(option, value, "Valid values are true and false.");
}

}  // namespace outbox::core
