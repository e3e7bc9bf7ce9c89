// What an HTTP status means for the event that was sent, in one table.
#pragma once

#include <span>
#include <string>

#include "core/verdict.hpp"

namespace outbox::core {

struct HttpStatusRow {
    int status;
    Verdict verdict;
    const char* name;
    bool strained = false;  // the endpoint has too much to do: half as many requests at once
};

// 2xx delivered. Of 4xx what is not listed is the event's own fault; everything else is the endpoint's.
Verdict verdict_of_status(int status);
bool is_strained(int status);
std::string status_words(int status);  // "HTTP 404 Not Found"

std::span<const HttpStatusRow> http_status_table();  // for tests: sorted by status

}  // namespace outbox::core
