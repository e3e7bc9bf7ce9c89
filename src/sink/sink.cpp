// The kinds of sinks.
#include "sink/sink.hpp"

#include "sink/http/client.hpp"
#include "sink/kafka/attendant.hpp"

namespace outbox::sink {

std::unique_ptr<Sink> make(const core::SinkOptions& options) {
    return options.kind == core::Kind::http ? make_http(options) : make_kafka(options);
}

std::vector<Check> test(const core::SinkOptions& options, std::chrono::milliseconds limit, bool (*cancelled)()) {
    return options.kind == core::Kind::http ? test_http(options, limit, cancelled) : test_kafka(options, limit, cancelled);
}

int threads_alive() { return kafka::clients() + http::lookups_left_behind(); }

}  // namespace outbox::sink
