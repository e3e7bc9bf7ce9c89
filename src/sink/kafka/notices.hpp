// What librdkafka says about itself (errors and log lines), boiled down to the one line that an operator needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.hpp"

namespace outbox::sink::kafka {

using core::clean_text;
using core::kMaxText;

class Notices {
public:
    explicit Notices(std::vector<std::string> secrets) : secrets_(std::move(secrets)) {}

    // An error event; `code` is an rd_kafka_resp_err_t. A cause outranks its consequences: "authentication failed" is
    // not replaced by "1/1 brokers are down" that follows from it.
    void error(std::int32_t code, std::string_view text);
    // A log line of librdkafka: taken when it tells of a failure and nothing better is known.
    void log(std::string_view facility, std::string_view text);
    // Something was delivered: what went wrong before is past, unless it was fatal.
    void clear() {
        if (rank_ != 0) forget();
    }

    const std::string& text() const { return text_; }
    std::string clean(std::string_view text) const { return clean_text(text, secrets_); }

private:
    void take(int rank, std::string_view text);
    void forget();

    std::vector<std::string> secrets_;
    std::string text_;
    int rank_ = 0;
    std::chrono::steady_clock::time_point taken_{};
};

}  // namespace outbox::sink::kafka
