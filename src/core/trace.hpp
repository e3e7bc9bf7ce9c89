// W3C Trace Context and Baggage, as far as a value must be right to become a header.
#pragma once

#include <string_view>

namespace outbox::core {

// What is wrong with a value, as a sentence; null: nothing. Empty is right: it means none.
const char* wrong_traceparent(std::string_view value);
const char* wrong_tracestate(std::string_view value);
const char* wrong_baggage(std::string_view value);

}  // namespace outbox::core
