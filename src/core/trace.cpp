#include "core/trace.hpp"

#include <algorithm>
#include <cstddef>

namespace outbox::core {

namespace {

// version-traceid-parentid-flags: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
constexpr std::size_t kVersion = 2, kTraceId = 32, kParentId = 16, kFlags = 2;
constexpr std::size_t kLongestTrace = 512;
constexpr std::size_t kLongestBaggage = 8192;

bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool is_printable_ascii(std::string_view value) {
    return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Takes `length` lower-case hexadecimal digits from the front of `rest`; an empty view when they are not there.
std::string_view take_hex(std::string_view& rest, std::size_t length) {
    if (rest.size() < length || !std::all_of(rest.begin(), rest.begin() + length, is_lower_hex)) return {};
    const std::string_view digits = rest.substr(0, length);
    rest.remove_prefix(length);
    return digits;
}

bool take_hyphen(std::string_view& rest) {
    if (rest.empty() || rest.front() != '-') return false;
    rest.remove_prefix(1);
    return true;
}

bool all_zero(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

const char* wrong_traceparent(std::string_view value) {
    static constexpr char form[] =
        "It must be version-traceid-parentid-flags, lower-case hexadecimal digits: 2, 32, 16 and 2 of them.";
    if (value.empty()) return nullptr;
    std::string_view rest = value;
    const std::string_view version = take_hex(rest, kVersion);
    if (version.empty() || !take_hyphen(rest)) return form;
    const std::string_view trace = take_hex(rest, kTraceId);
    if (trace.empty() || !take_hyphen(rest)) return form;
    const std::string_view parent = take_hex(rest, kParentId);
    if (parent.empty() || !take_hyphen(rest) || take_hex(rest, kFlags).empty()) return form;
    if (version == "ff") return "Version ff is not a version.";
    if (all_zero(trace) || all_zero(parent)) return "Neither the trace id nor the parent id may be all zeros.";
    // Later versions may say more, behind another hyphen.
    if (rest.empty()) return nullptr;
    if (version == "00" || rest.front() != '-') return form;
    if (value.size() > kLongestTrace) return "At most 512 characters are allowed.";
    return is_printable_ascii(rest) ? nullptr : "Only printable ASCII characters are allowed.";
}

const char* wrong_tracestate(std::string_view value) {
    if (value.size() > kLongestTrace) return "At most 512 characters are allowed.";
    return is_printable_ascii(value) ? nullptr : "Only printable ASCII characters are allowed.";
}

const char* wrong_baggage(std::string_view value) {
    if (value.size() > kLongestBaggage) return "At most 8192 characters are allowed.";
    return is_printable_ascii(value) ? nullptr : "Only printable ASCII characters are allowed.";
}

}  // namespace outbox::core
