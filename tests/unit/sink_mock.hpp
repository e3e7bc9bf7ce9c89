// For the sink's unit tests: a mock cluster in this process, a consumer for what arrived there, and a driver that takes
// reports as the relay does.
#pragma once

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sink/sink.hpp"

namespace outbox::test {

using core::Verdict;
using sink::Accept;
using sink::Clock;
using sink::Refusal;
using sink::Report;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline void conf_set(rd_kafka_conf_t* conf, const char* name, const std::string& value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value.c_str(), error, sizeof error) != RD_KAFKA_CONF_OK) {
        throw std::runtime_error(error);
    }
}

class MockCluster {
public:
    explicit MockCluster(int brokers = 1) : brokers_(brokers) {
        rd_kafka_conf_t* conf = rd_kafka_conf_new();
        conf_set(conf, "socket.nagle.disable", "true");
        conf_set(conf, "log_level", "0");
        char error[256];
        rk_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
        if (rk_ == nullptr) throw std::runtime_error(error);
        cluster_ = rd_kafka_mock_cluster_new(rk_, brokers);
    }
    ~MockCluster() {
        rd_kafka_mock_cluster_destroy(cluster_);
        rd_kafka_destroy(rk_);
    }
    MockCluster(const MockCluster&) = delete;
    MockCluster& operator=(const MockCluster&) = delete;

    rd_kafka_mock_cluster_t* get() const { return cluster_; }
    std::string bootstrap() const { return rd_kafka_mock_cluster_bootstraps(cluster_); }
    void topic(const char* name, int partitions) { rd_kafka_mock_topic_create(cluster_, name, partitions, 1); }
    void topic_error(const char* name, rd_kafka_resp_err_t error) {
        rd_kafka_mock_topic_set_error(cluster_, name, error);
    }
    // Answers take that long from now on. An event for a topic that the sink has not heard of is queued if it comes before the first
    // answer about the topic, and refused at once behind it: a test that wants the former lets the answer take its time.
    void answers_take(int ms) {
        for (int id = 1; id <= brokers_; id++) rd_kafka_mock_broker_set_rtt(cluster_, id, ms);
    }

private:
    int brokers_;
    rd_kafka_t* rk_;
    rd_kafka_mock_cluster_t* cluster_;
};

// librdkafka 2.6 to 2.8 crashes on a topic error beside partitions. The mock answers so, Kafka does not.
inline bool crashes_on_denied_topics() { return rd_kafka_version() >= 0x020600ff && rd_kafka_version() < 0x020a0000; }

struct Record {
    int partition = 0;
    std::int64_t timestamp = 0;
    std::optional<std::string> key, value;
    std::vector<std::pair<std::string, std::optional<std::string>>> headers;
};

// Everything in the topic, each partition in its order.
inline std::vector<Record> consume(const std::string& bootstrap, const char* topic, int partitions) {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    conf_set(conf, "bootstrap.servers", bootstrap);
    conf_set(conf, "group.id", "unit");
    conf_set(conf, "enable.partition.eof", "true");
    conf_set(conf, "log_level", "0");
    char error[256];
    rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (rk == nullptr) throw std::runtime_error(error);
    rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(partitions);
    for (int p = 0; p < partitions; p++) {
        rd_kafka_topic_partition_list_add(list, topic, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    rd_kafka_assign(rk, list);
    rd_kafka_topic_partition_list_destroy(list);

    std::vector<Record> records;
    const auto deadline = Clock::now() + seconds(20);
    for (int ends = 0; ends < partitions && Clock::now() < deadline;) {
        rd_kafka_message_t* message = rd_kafka_consumer_poll(rk, 100);
        if (message == nullptr) continue;
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) ends++;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            Record& record = records.emplace_back();
            record.partition = message->partition;
            record.timestamp = rd_kafka_message_timestamp(message, nullptr);
            if (message->key != nullptr) {
                record.key.emplace(static_cast<const char*>(message->key), message->key_len);
            }
            if (message->payload != nullptr) {
                record.value.emplace(static_cast<const char*>(message->payload), message->len);
            }
            rd_kafka_headers_t* headers = nullptr;
            if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
                const char* name;
                const void* value;
                std::size_t size;
                for (std::size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
                    record.headers.emplace_back(name, std::nullopt);
                    if (value != nullptr) {
                        record.headers.back().second.emplace(static_cast<const char*>(value), size);
                    }
                }
            }
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return records;
}

inline core::SinkOptions options_for(const std::string& bootstrap, std::string topic = "t") {
    core::SinkOptions options;
    options.topic = std::move(topic);
    options.format = core::Format::payload;
    options.database = "db";
    options.sink = "kafka";
    options.properties.emplace_back("bootstrap.servers", bootstrap);
    return options;
}

// An event that owns its text.
struct OwnEvent {
    std::string key, payload, topic;
    core::Event event;

    OwnEvent(std::string_view k, std::string_view p, std::string_view t = {}) : key(k), payload(p), topic(t) {
        event.aggregate_id = key;
        event.payload = payload;
        event.event_type = "x";
        event.created_at = 1'700'000'000'123'456;
        if (!topic.empty()) event.topic = topic;
    }
    OwnEvent(const OwnEvent&) = delete;
    OwnEvent& operator=(const OwnEvent&) = delete;
};

// Takes reports until `count` have come or the time is over.
inline std::vector<Report> wait_for(sink::Sink& sink, std::size_t count, milliseconds limit = seconds(20)) {
    std::vector<Report> reports;
    const auto deadline = Clock::now() + limit;
    while (reports.size() < count && Clock::now() < deadline) {
        pollfd ready{sink.fd(), POLLIN, 0};
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
        poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
        Report some[64];
        const std::size_t taken = sink.collect(some);
        reports.insert(reports.end(), some, some + taken);
    }
    return reports;
}

inline Accept send(sink::Sink& sink, const core::Event& event, std::uint32_t tag, Refusal& why) {
    return sink.send(event, tag, why);
}
inline Accept send(sink::Sink& sink, const core::Event& event, std::uint32_t tag = 0) {
    Refusal why;
    return sink.send(event, tag, why);
}

// Takes reports until `done` or the time is over; says whether it was done.
template <typename Done>
bool eventually(sink::Sink& sink, std::vector<Report>& reports, Done done, milliseconds limit = seconds(20)) {
    const auto deadline = Clock::now() + limit;
    while (!done()) {
        if (Clock::now() > deadline) return false;
        const auto some = wait_for(sink, 1, milliseconds(10));
        reports.insert(reports.end(), some.begin(), some.end());
    }
    return true;
}
template <typename Done>
bool eventually(sink::Sink& sink, Done done, milliseconds limit = seconds(20)) {
    std::vector<Report> reports;
    return eventually(sink, reports, done, limit);
}

inline void append(std::vector<Report>& to, const std::vector<Report>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

}  // namespace outbox::test
