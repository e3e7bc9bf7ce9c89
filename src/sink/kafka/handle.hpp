// Owners of librdkafka's objects, so that each is given back on every way out. No rdkafka.h here: the names are
// declared, and handle.cpp knows what they are.
#pragma once

#include <memory>

#include "sink/signals.hpp"

struct rd_kafka_s;
struct rd_kafka_conf_s;
struct rd_kafka_topic_s;
struct rd_kafka_queue_s;
struct rd_kafka_headers_s;
struct rd_kafka_op_s;  // rd_kafka_event_t

namespace outbox::sink::kafka {

struct Release {
    void operator()(rd_kafka_conf_s* conf) const noexcept;
    void operator()(rd_kafka_topic_s* topic) const noexcept;
    void operator()(rd_kafka_queue_s* queue) const noexcept;
    void operator()(rd_kafka_headers_s* headers) const noexcept;
    void operator()(rd_kafka_op_s* event) const noexcept;
};

using Conf = std::unique_ptr<rd_kafka_conf_s, Release>;
using Topic = std::unique_ptr<rd_kafka_topic_s, Release>;
using Queue = std::unique_ptr<rd_kafka_queue_s, Release>;
using Headers = std::unique_ptr<rd_kafka_headers_s, Release>;
using EventPtr = std::unique_ptr<rd_kafka_op_s, Release>;
// The client itself has no owner of this kind: destroying it may take seconds (see attendant.hpp).

// A pipe that neither blocks nor is inherited: librdkafka writes, we read.
class Pipe {
public:
    Pipe();  // throws std::runtime_error
    ~Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    int read_end() const { return ends_[0]; }
    int write_end() const { return ends_[1]; }
    void read_dry() const;
    void ring() const;  // makes the read end readable

private:
    int ends_[2];
};

}  // namespace outbox::sink::kafka
