// A client library starts threads, and signals in the server's processes are PostgreSQL's.
#pragma once

namespace outbox::sink {

// While one lives, this thread takes no signal, and neither will any thread that it starts.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept;
    ~SignalsBlocked();
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    alignas(16) unsigned char before_[128];  // a sigset_t
};

}  // namespace outbox::sink
