// libcurl's multi interface as one file descriptor: an epoll set of its sockets and a timer. Everything happens on the caller's
// thread, but for name lookups, for which libcurl starts threads. No curl.h here: a handle is a void*.
#pragma once

#include <chrono>
#include <functional>

namespace outbox::sink::http {

using Clock = std::chrono::steady_clock;

class Client {
public:
    explicit Client(int most_connections);  // throws std::runtime_error
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void add(void* easy);
    // Breaks it off if it is not at its end.
    void remove(void* easy);

    // Readable when run() may have something to do.
    int fd() const { return epoll_; }
    // Lets libcurl work, without waiting; `done` gets each transfer that has ended, still added, with its CURLcode.
    void run(const std::function<void(void* easy, int code)>& done);
    // fd() becomes readable then, too. In the past: at once.
    void wake_at(Clock::time_point time);

private:
    friend struct Callbacks;

    int epoll_ = -1, curl_timer_ = -1, own_timer_ = -1;
    void* multi_ = nullptr;
};

// Lookups that were given up while a thread of libcurl's may still have been at them: no telling when it ends. A process that had
// one leaves by _exit.
int lookups_left_behind();
void lookup_left_behind();

}  // namespace outbox::sink::http
