#include "sink/kafka/handle.hpp"

#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace outbox::sink::kafka {

void Release::operator()(rd_kafka_conf_s* conf) const noexcept { rd_kafka_conf_destroy(conf); }
void Release::operator()(rd_kafka_topic_s* topic) const noexcept { rd_kafka_topic_destroy(topic); }
void Release::operator()(rd_kafka_queue_s* queue) const noexcept { rd_kafka_queue_destroy(queue); }
void Release::operator()(rd_kafka_headers_s* headers) const noexcept { rd_kafka_headers_destroy(headers); }
void Release::operator()(rd_kafka_op_s* event) const noexcept { rd_kafka_event_destroy(event); }

Pipe::Pipe() {
    if (pipe2(ends_, O_NONBLOCK | O_CLOEXEC) != 0) {
        throw std::runtime_error(std::string("no pipe for delivery reports: ") + std::strerror(errno));
    }
}

Pipe::~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
}

void Pipe::read_dry() const {
    char bytes[256];
    while (read(ends_[0], bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
    }
}

void Pipe::ring() const {
    // A full pipe is readable already: what write() says does not matter.
    [[maybe_unused]] const ssize_t ignored = write(ends_[1], "", 1);
}

}  // namespace outbox::sink::kafka
