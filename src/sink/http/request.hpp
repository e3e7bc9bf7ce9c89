// One request: what is sent, libcurl's handle for it, and what came back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/http_message.hpp"
#include "core/options.hpp"

struct curl_slist;

namespace outbox::sink::http {

// A libcurl handle with all that is the same for every request of a sink. Reused.
class Handle {
public:
    explicit Handle(const core::SinkOptions& options);  // throws std::runtime_error
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    // What is to be sent; the signature is made for this moment. `message` must stay where it is until the request is over.
    void prepare(const core::HttpMessage& message);

    void* easy() const { return easy_; }

    // After its end with a CURLcode.
    struct Answer {
        int status = 0;            // 0: none, or not all of it
        std::string words;         // one line: the status and a piece of the body, or what went wrong
        std::int64_t retry_after_s = 0;
        bool resolved = true;      // the name was looked up; false: a thread may still be at it
        bool connected = false, secured = false;
        std::string address;       // that was connected to
    };
    Answer answer(int code) const;

private:
    friend struct RequestCallbacks;

    const core::SinkOptions& options_;
    std::vector<std::string> secrets_;  // that no text may repeat
    void* easy_ = nullptr;
    curl_slist* headers_ = nullptr;
    char error_[256] = "";  // CURL_ERROR_SIZE
    std::string body_;      // its beginning
    std::size_t body_size_ = 0, header_size_ = 0;
    bool body_cut_ = false;
    std::string refused_;   // why the address was not connected to
};

}  // namespace outbox::sink::http
