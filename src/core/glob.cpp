#include "core/glob.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "core/utf8.hpp"

namespace outbox::core {

namespace {

constexpr char kHint[] =
    "Write comma-separated globs over aggregate_type/event_type, for example payment/*, or * for every event.";

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

bool may_match_aggregate_type(char c) { return is_name_character(c) || c == '*' || c == '?'; }

bool all_printable(std::string_view text) {
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
        if (!is_printable(read_utf8(at, end))) return false;
    }
    return true;
}

}  // namespace

// After a mismatch only the last `*` has to take one character more: whatever an earlier one could take, the leftmost
// match of what stands between them leaves the most for the rest.
bool glob_matches(std::string_view glob, std::string_view text) {
    const char* g = glob.data();
    const char* const glob_end = g + glob.size();
    const char* t = text.data();
    const char* const text_end = t + text.size();
    const char* behind_star = nullptr;
    const char* star_took_to = nullptr;
    while (t < text_end) {
        if (g < glob_end && *g == '*') {
            behind_star = ++g;
            star_took_to = t;
        } else if (g < glob_end && *g == '?') {
            ++g;
            read_utf8(t, text_end);
        } else if (g < glob_end && *g == *t) {
            ++g;
            ++t;
        } else if (behind_star != nullptr) {
            read_utf8(star_took_to, text_end);
            t = star_took_to;
            g = behind_star;
        } else {
            return false;
        }
    }
    while (g < glob_end && *g == '*') ++g;
    return g == glob_end;
}

bool EventFilter::parse(std::string_view globs, std::string& error, std::string& hint) {
    std::vector<Pair> pairs;
    bool everything = false;
    auto bad = [&](std::string_view glob, const char* why) {
        error = "events: glob " + quote_for_message(glob) + " " + why;
        hint = kHint;
        return false;
    };
    for (std::size_t start = 0; start <= globs.size();) {
        const std::size_t comma = std::min(globs.find(',', start), globs.size());
        const std::string_view glob = trimmed(globs.substr(start, comma - start));
        start = comma + 1;
        if (glob.empty()) return bad(glob, "is empty");
        const std::size_t slash = glob.find('/');
        const std::string_view type = glob.substr(0, slash);
        const std::string_view event = slash == std::string_view::npos ? std::string_view("*") : glob.substr(slash + 1);
        if (event.find('/') != std::string_view::npos) return bad(glob, "has more than one slash");
        if (event.empty()) return bad(glob, "ends with its slash, and no event type is empty");
        if (!std::all_of(type.begin(), type.end(), may_match_aggregate_type)) {
            return bad(glob, "has a character that no aggregate_type has");
        }
        if (!all_printable(event)) return bad(glob, "has a character that no event_type has");
        everything = everything || (type == "*" && event == "*");
        pairs.push_back({std::string(type), std::string(event)});
    }
    if (everything) pairs.clear();
    pairs_ = std::move(pairs);
    return true;
}

bool EventFilter::matches(Bytes aggregate_type, Bytes event_type) const {
    return pairs_.empty() || std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
               return glob_matches(pair.aggregate_type, aggregate_type) && glob_matches(pair.event_type, event_type);
           });
}

}  // namespace outbox::core
