// A pg_snapshot on this side: which transactions were visible when something was read. Pure C++.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::core {

struct Snapshot {
    std::uint64_t xmin = 0;          // all below were finished
    std::uint64_t xmax = 0;          // one past the latest completed; running ones can lie at or above it
    std::vector<std::uint64_t> xip;  // running, xmin <= x < xmax, ascending

    // As pg_visible_in_snapshot has it: finished before the snapshot was taken.
    bool visible(std::uint64_t xid) const
    {
        return xid < xmin || (xid < xmax && !std::binary_search(xip.begin(), xip.end(), xid));
    }

    bool operator==(const Snapshot &) const = default;

    std::string text() const
    {
        std::string out = std::to_string(xmin) + ':' + std::to_string(xmax) + ':';
        for (std::size_t i = 0; i < xip.size(); i++)
            out += (i > 0 ? "," : "") + std::to_string(xip[i]);
        return out;
    }
};

// Parses pg_snapshot's text form, xmin:xmax:xip,xip. False: it is not one.
inline bool parse_snapshot(std::string_view text, Snapshot &snapshot)
{
    const char *p = text.data(), *end = p + text.size();
    auto number = [&](std::uint64_t &to) {
        auto [next, error] = std::from_chars(p, end, to);
        bool ok = error == std::errc{} && next != p;
        p = next;
        return ok;
    };
    auto character = [&](char c) { return p != end && *p == c && (p++, true); };
    snapshot.xip.clear();
    if (!number(snapshot.xmin) || !character(':') || !number(snapshot.xmax) || !character(':'))
        return false;
    while (p != end) {
        std::uint64_t xid = 0;
        if ((!snapshot.xip.empty() && !character(',')) || !number(xid))
            return false;
        snapshot.xip.push_back(xid);
    }
    return std::is_sorted(snapshot.xip.begin(), snapshot.xip.end());
}

}  // namespace outbox::core
