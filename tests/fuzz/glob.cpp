// Globs: the first line is the list, then aggregate_type and event_type. Matching agrees with a table of all prefixes.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/glob.hpp"
#include "core/utf8.hpp"

using namespace outbox::core;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

std::vector<char32_t> code_points(std::string_view text) {
    std::vector<char32_t> points;
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) points.push_back(read_utf8(at, end));
    return points;
}

// matched[j]: the glob so far matches the first j characters.
bool reference(std::string_view glob, std::string_view text) {
    const auto g = code_points(glob), t = code_points(text);
    std::vector<bool> matched(t.size() + 1);
    matched[0] = true;
    for (const char32_t c : g) {
        std::vector<bool> next(t.size() + 1);
        for (std::size_t j = 0; j <= t.size(); ++j) {
            if (c == '*') {
                next[j] = matched[j] || (j > 0 && next[j - 1]);
            } else {
                next[j] = j > 0 && matched[j - 1] && (c == '?' || c == t[j - 1]);
            }
        }
        matched = next;
    }
    return matched[t.size()];
}

std::string_view take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 2000) return 0;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    const std::string_view globs = take_line(rest), aggregate_type = take_line(rest), event_type = take_line(rest);
    EventFilter filter;
    std::string error, hint;
    if (filter.parse(globs, error, hint)) {
        const bool taken = filter.matches(aggregate_type, event_type);
        demand(taken || !filter.matches_everything());
    } else {
        demand(!error.empty() && error.find('\n') == std::string::npos);
    }
    if (is_utf8(globs) && is_utf8(aggregate_type)) {
        demand(glob_matches(globs, aggregate_type) == reference(globs, aggregate_type));
    }
    return 0;
}
