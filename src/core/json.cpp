#include "core/json.hpp"

#include <array>
#include <cstring>

#include "core/hex.hpp"
#include "core/utf8.hpp"

namespace outbox::core {

namespace {

// How a byte is written in a JSON string: 0 as it is, 'u' as \u00XX, else as backslash and this letter.
constexpr std::array<char, 256> kEscape = [] {
    std::array<char, 256> table{};
    for (std::size_t c = 0; c < 0x20; ++c) table[c] = 'u';
    table['"'] = '"';
    table['\\'] = '\\';
    table['\b'] = 'b';
    table['\f'] = 'f';
    table['\n'] = 'n';
    table['\r'] = 'r';
    table['\t'] = 't';
    return table;
}();

// Four hexadecimal digits at `at`, which moves past them.
char32_t read_hex4(const char*& at, const char* end) {
    if (end - at < 4) return kBadCodePoint;
    char32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        const int digit = hex_value(*at++);
        if (digit < 0) return kBadCodePoint;
        value = value << 4 | static_cast<char32_t>(digit);
    }
    return value;
}

// The escape sequence at `at` (a backslash), which moves past it. U+0000 and half a surrogate pair are bad.
char32_t read_escape(const char*& at, const char* end) {
    if (end - at < 2) return kBadCodePoint;
    ++at;
    switch (*at++) {
        case '"': return '"';
        case '\\': return '\\';
        case '/': return '/';
        case 'b': return '\b';
        case 'f': return '\f';
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case 'u': break;
        default: return kBadCodePoint;
    }
    const char32_t unit = read_hex4(at, end);
    if (unit == 0 || (unit >= 0xDC00 && unit <= 0xDFFF)) return kBadCodePoint;
    if (unit < 0xD800 || unit > 0xDBFF) return unit;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return kBadCodePoint;
    at += 2;
    const char32_t low = read_hex4(at, end);
    if (low < 0xDC00 || low > 0xDFFF) return kBadCodePoint;
    return 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00));
}

}  // namespace

void append_json_string(Buffer& out, std::string_view text) {
    constexpr char digits[] = "0123456789abcdef";
    out.append('"');
    std::size_t clean = 0;  // start of the bytes that go out as they are
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const char escape = kEscape[byte];
        if (escape == 0) continue;
        out.append(text.substr(clean, i - clean));
        clean = i + 1;
        if (escape == 'u') {
            const char code[] = {'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]};
            out.append(std::string_view(code, sizeof code));
        } else {
            out.append('\\');
            out.append(escape);
        }
    }
    out.append(text.substr(clean));
    out.append('"');
}

void FlatObjectReader::skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
}

bool FlatObjectReader::take(char expected) {
    skip_space();
    if (at_ == end_ || *at_ != expected) return false;
    ++at_;
    return true;
}

// At the opening quote; leaves at_ behind the closing one.
bool FlatObjectReader::read_string(std::string_view& raw, bool& escaped) {
    const char* start = ++at_;
    escaped = false;
    while (at_ < end_ && *at_ != '"') {
        if (*at_ == '\\') {
            escaped = true;
            if (read_escape(at_, end_) == kBadCodePoint) return false;
        } else if (static_cast<unsigned char>(*at_) < 0x20) {
            return false;
        } else {
            ++at_;
        }
    }
    if (at_ == end_) return false;
    raw = {start, static_cast<std::size_t>(at_ - start)};
    ++at_;
    return true;
}

FlatObjectReader::Step FlatObjectReader::next(Member& member) {
    if (stopped_) return why_;
    if (!started_ && !take('{')) return stop(Step::not_an_object);
    if (take('}')) {
        skip_space();
        return stop(at_ == end_ ? Step::end : Step::malformed);
    }
    if (started_ && !take(',')) return stop(Step::malformed);
    started_ = true;

    skip_space();
    if (at_ == end_ || *at_ != '"' || !read_string(member.name, member.name_escaped)) return stop(Step::malformed);
    if (!take(':')) return stop(Step::malformed);
    skip_space();
    member.value = {};
    member.value_escaped = false;
    member.null = false;
    if (at_ == end_) return stop(Step::malformed);
    if (*at_ == '"') return read_string(member.value, member.value_escaped) ? Step::member : stop(Step::malformed);
    if (end_ - at_ >= 4 && std::memcmp(at_, "null", 4) == 0) {
        at_ += 4;
        member.null = true;
        return Step::member;
    }
    return stop(Step::not_a_string);
}

std::string_view decode_json_string(std::string_view raw, Buffer& out) {
    const std::size_t start = out.size();
    const char* at = raw.data();
    const char* end = at + raw.size();
    while (at < end) {
        const void* found = std::memchr(at, '\\', static_cast<std::size_t>(end - at));
        const char* escape = found ? static_cast<const char*>(found) : end;
        out.append(std::string_view(at, static_cast<std::size_t>(escape - at)));
        at = escape;
        if (at == end) break;
        const char32_t code_point = read_escape(at, end);
        if (code_point == kBadCodePoint) break;  // cannot be: the reader has seen it
        append_utf8(out, code_point);
    }
    return out.view_from(start);
}

bool parse_flat_object(std::string_view text, std::vector<JsonMember>& members, Buffer& decoded) {
    using Step = FlatObjectReader::Step;
    decoded.clear();
    decoded.reserve(text.size());  // decoding never lengthens, so the views into it stay
    FlatObjectReader reader(text);
    FlatObjectReader::Member raw;
    Step step;
    while ((step = reader.next(raw)) == Step::member) {
        members.push_back({raw.name_escaped ? decode_json_string(raw.name, decoded) : raw.name,
                           raw.value_escaped ? decode_json_string(raw.value, decoded) : raw.value, raw.null});
    }
    return step == Step::end;
}

}  // namespace outbox::core
