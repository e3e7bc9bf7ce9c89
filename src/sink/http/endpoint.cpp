#include "sink/http/endpoint.hpp"

#include <map>
#include <string>

namespace outbox::sink::http {

namespace {

// A pause of the relay's own must not cost the rate that was agreed on: so much of it may be made up for.
constexpr std::chrono::milliseconds kCatchUp{100};

}  // namespace

Endpoint& Endpoint::of(const core::SinkOptions& options) {
    static auto* const all = new std::map<std::string, Endpoint>;  // never destroyed: no destructor runs at exit
    Endpoint& endpoint = (*all)[options.sink + "\n" + options.http.url];
    endpoint.configure(options.http.concurrency, static_cast<double>(options.http.rate_limit) / std::max(options.lanes, 1), Clock::now());
    return endpoint;
}

void Endpoint::configure(int concurrency, double per_second, Clock::time_point now) {
    if (concurrency != most_) at_once_ = concurrency;
    most_ = concurrency;
    const std::chrono::nanoseconds apart(per_second > 0 ? static_cast<std::int64_t>(1e9 / per_second) : 0);
    if (apart != apart_) next_turn_ = now;
    apart_ = apart;
}

bool Endpoint::take_turn(Clock::time_point now) {
    if (apart_.count() == 0) return true;
    if (now < next_turn_) return false;
    next_turn_ = std::max(next_turn_, now - kCatchUp) + apart_;
    return true;
}

}  // namespace outbox::sink::http
