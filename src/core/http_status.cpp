#include "core/http_status.hpp"

#include <algorithm>
#include <iterator>

namespace outbox::core {

namespace {

// Outage: it would be the same with any event. A wrong address, a wrong deployment or credentials that ran out must not make
// events dead. Refused: another event may well be taken.
constexpr HttpStatusRow kTable[] = {
    {200, Verdict::delivered, "OK"},
    {201, Verdict::delivered, "Created"},
    {202, Verdict::delivered, "Accepted"},
    {204, Verdict::delivered, "No Content"},
    {300, Verdict::outage, "Multiple Choices"},  // no redirect is followed: a body and its signature go where the sink's url says
    {301, Verdict::outage, "Moved Permanently"},
    {302, Verdict::outage, "Found"},
    {303, Verdict::outage, "See Other"},
    {304, Verdict::outage, "Not Modified"},
    {307, Verdict::outage, "Temporary Redirect"},
    {308, Verdict::outage, "Permanent Redirect"},
    {400, Verdict::refused, "Bad Request"},
    {401, Verdict::outage, "Unauthorized"},
    {402, Verdict::refused, "Payment Required"},
    {403, Verdict::outage, "Forbidden"},
    {404, Verdict::outage, "Not Found"},
    {405, Verdict::outage, "Method Not Allowed"},
    {406, Verdict::refused, "Not Acceptable"},
    {407, Verdict::outage, "Proxy Authentication Required"},
    {408, Verdict::outage, "Request Timeout"},
    {409, Verdict::refused, "Conflict"},
    {410, Verdict::gone, "Gone"},
    {411, Verdict::refused, "Length Required"},
    {412, Verdict::refused, "Precondition Failed"},
    {413, Verdict::refused, "Content Too Large"},
    {414, Verdict::refused, "URI Too Long"},
    {415, Verdict::refused, "Unsupported Media Type"},
    {421, Verdict::outage, "Misdirected Request"},
    {422, Verdict::refused, "Unprocessable Content"},
    {425, Verdict::outage, "Too Early"},
    {429, Verdict::outage, "Too Many Requests", true},
    {431, Verdict::refused, "Request Header Fields Too Large"},
    {451, Verdict::refused, "Unavailable For Legal Reasons"},
    {500, Verdict::outage, "Internal Server Error"},
    {501, Verdict::outage, "Not Implemented"},
    {502, Verdict::outage, "Bad Gateway", true},
    {503, Verdict::outage, "Service Unavailable", true},
    {504, Verdict::outage, "Gateway Timeout", true},
};

constexpr bool by_status(const HttpStatusRow& a, const HttpStatusRow& b) { return a.status < b.status; }
static_assert(std::is_sorted(std::begin(kTable), std::end(kTable), by_status));

const HttpStatusRow* find(int status) {
    const auto row = std::lower_bound(std::begin(kTable), std::end(kTable), HttpStatusRow{status, Verdict::outage, ""}, by_status);
    return row != std::end(kTable) && row->status == status ? row : nullptr;
}

}  // namespace

Verdict verdict_of_status(int status) {
    if (status >= 200 && status < 300) return Verdict::delivered;
    if (const HttpStatusRow* row = find(status)) return row->verdict;
    return status >= 400 && status < 500 ? Verdict::refused : Verdict::outage;
}

bool is_strained(int status) {
    const HttpStatusRow* row = find(status);
    return row != nullptr && row->strained;
}

std::string status_words(int status) {
    const HttpStatusRow* row = find(status);
    return "HTTP " + std::to_string(status) + (row != nullptr ? std::string(" ") + row->name : std::string());
}

std::span<const HttpStatusRow> http_status_table() { return kTable; }

}  // namespace outbox::core
