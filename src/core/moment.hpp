// By the clock, and by what this thread has worked. Pure C++.
#pragma once

#include <chrono>
#include <ctime>

namespace outbox::core {

// What something costs is the difference of `worked`, whatever else the machine does meanwhile.
struct Moment {
    std::chrono::steady_clock::time_point time;
    std::chrono::nanoseconds worked{};

    static Moment now()
    {
        timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return {std::chrono::steady_clock::now(), std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec)};
    }
};

}  // namespace outbox::core
