// Small things that error messages and names share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outbox::core {

// What Kafka allows in a topic name, and outbox in an aggregate_type: A-Z a-z 0-9 . _ -
constexpr bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

// `text` in double quotes, fit for a log line: control characters and broken UTF-8 as '?', and what is longer than
// 100 characters is cut.
std::string quote_for_message(std::string_view text);

// The longest text that leaves a sink for an error column.
inline constexpr std::size_t kMaxText = 200;

// One printable line of UTF-8, at most kMaxText bytes, with each of `secrets` blotted out.
std::string clean_text(std::string_view text, const std::vector<std::string>& secrets);

}  // namespace outbox::core
