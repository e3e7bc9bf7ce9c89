// Values of options as people write them, for options.cpp and http_options.cpp. An error changes nothing and has a hint.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "core/options.hpp"

namespace outbox::core {

inline constexpr std::int64_t kSecond = 1'000, kMinute = 60 * kSecond, kHour = 60 * kMinute;

OptionError bad_value(std::string_view option, std::string_view value, std::string hint);

OptionError set_count(int& to, int least, int most, std::string_view option, std::string_view value);
// A whole number with its unit ms, s, min or h. `range` says in words what may be given.
OptionError set_duration(int& to_ms, std::int64_t least_ms, std::int64_t most_ms, const char* range,
                         std::string_view option, std::string_view value);
OptionError set_boolean(bool& to, std::string_view option, std::string_view value);

template <typename Enum>
struct Named {
    const char* name;
    Enum value;
};

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

}  // namespace outbox::core
