#include "core/text.hpp"

#include "core/utf8.hpp"

namespace outbox::core {

std::string quote_for_message(std::string_view text) {
    constexpr int most = 100;
    std::string out = "\"";
    const char* at = text.data();
    const char* end = at + text.size();
    int count = 0;
    while (at < end && count++ < most) {
        const char* start = at;
        if (is_printable(read_utf8(at, end))) {
            out.append(start, at);
        } else {
            out += '?';
        }
    }
    if (at < end) out += "...";
    return out += '"';
}

}  // namespace outbox::core
