// Time that this thread has worked. Pure C++.
#pragma once

#include <chrono>
#include <ctime>

namespace outbox::core {

// What something cost, whatever else the machine does meanwhile.
inline std::chrono::nanoseconds thread_time()
{
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace outbox::core
