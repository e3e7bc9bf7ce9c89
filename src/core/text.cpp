#include "core/text.hpp"

#include "core/utf8.hpp"

namespace outbox::core {

namespace {

void blot_out(std::string& text, std::string_view secret) {
    for (std::size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at + 3)) {
        text.replace(at, secret.size(), "***");
    }
}

}  // namespace

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

std::string clean_text(std::string_view text, const std::vector<std::string>& secrets) {
    std::string whole(text);
    for (const std::string& secret : secrets) {
        if (!secret.empty()) blot_out(whole, secret);
    }
    std::string line;
    const char* at = whole.data();
    const char* const end = at + whole.size();
    while (at != end) {
        const char* const start = at;
        const char32_t c = read_utf8(at, end);
        const std::size_t length = static_cast<std::size_t>(at - start);
        if (line.size() + length > kMaxText - 3 && at != end) {
            line += "...";
            break;
        }
        if (c == U'\n' || c == U'\t' || c == U'\r') {
            if (!line.empty() && line.back() != ' ') line += ' ';
        } else if (c == kBadCodePoint || !is_printable(c)) {
            line += '?';
        } else {
            line.append(start, length);
        }
    }
    while (!line.empty() && (line.back() == ' ' || line.back() == ':')) line.pop_back();
    return line;
}

}  // namespace outbox::core
