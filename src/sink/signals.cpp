#include "sink/signals.hpp"

#include <pthread.h>
#include <signal.h>

namespace outbox::sink {

SignalsBlocked::SignalsBlocked() noexcept {
    static_assert(sizeof(sigset_t) <= sizeof before_);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, reinterpret_cast<sigset_t*>(before_));
}

SignalsBlocked::~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, reinterpret_cast<const sigset_t*>(before_), nullptr);
}

}  // namespace outbox::sink
