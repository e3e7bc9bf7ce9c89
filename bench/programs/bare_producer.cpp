// A bare librdkafka program, to hold a relay against: streams COUNT messages without waiting, counts the reports, and ends when
// all were acknowledged. How fast that was is seen from the broker (bench/meter.py).
//
//   g++ -std=c++20 -O2 bench/programs/bare_producer.cpp -lrdkafka -o bare_producer
//   bare_producer TOPIC COUNT SIZE PACE property=value ...
//
// Key, headers and value have the lengths of what a relay sends with the format `payload`. With a PACE other than 0 it sends so many
// a second, and each value begins with the clock's time when it was sent, in nanoseconds: {"n": 1700000000000000000, ...
#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

long acknowledged;

void on_report(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        std::fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->err));
        std::exit(1);
    }
    acknowledged++;
}

rd_kafka_headers_t* make_headers() {
    rd_kafka_headers_t* headers = rd_kafka_headers_new(3);
    rd_kafka_header_add(headers, "event_id", -1, "018f4e3a-7b1c-7def-8123-456789abcdef", -1);
    rd_kafka_header_add(headers, "event_type", -1, "order_captured", -1);
    rd_kafka_header_add(headers, "aggregate_type", -1, "order", -1);
    return headers;
}

// The value of a message that is sent now: the time in front, the length as it was.
void stamp(std::string& value) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto head = "{\"n\": " + std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) + ", ";
    value.replace(0, head.size(), head);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 6) {
        std::fprintf(stderr, "usage: %s TOPIC COUNT SIZE PACE property=value ...\n", argv[0]);
        return 2;
    }
    const long count = std::atol(argv[2]);
    std::string value(static_cast<std::size_t>(std::atol(argv[3])), 'x');
    const long pace = std::atol(argv[4]);
    char error[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    for (int i = 5; i < argc; i++) {
        char* const equals = std::strchr(argv[i], '=');
        if (equals == nullptr) return 2;
        *equals = '\0';
        if (rd_kafka_conf_set(conf, argv[i], equals + 1, error, sizeof error) != RD_KAFKA_CONF_OK) {
            std::fprintf(stderr, "%s\n", error);
            return 2;
        }
    }
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (rk == nullptr) {
        std::fprintf(stderr, "%s\n", error);
        return 1;
    }
    rd_kafka_topic_t* topic = rd_kafka_topic_new(rk, argv[1], nullptr);

    const auto began = Clock::now();
    for (long i = 0; i < count; i++) {
        if (pace > 0) {
            while (Clock::now() < began + i * std::chrono::microseconds(1'000'000) / pace) {
                rd_kafka_poll(rk, 0);
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
            stamp(value);
        }
        const std::string key = "key-" + std::to_string(i % 1000);
        rd_kafka_headers_t* headers = make_headers();
        while (rd_kafka_producev(rk, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                 RD_KAFKA_V_KEY(key.data(), key.size()), RD_KAFKA_V_VALUE(value.data(), value.size()),
                                 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR) {
            rd_kafka_poll(rk, 1);  // the queue is full
        }
        if ((i & 255) == 255) rd_kafka_poll(rk, 0);
    }
    while (acknowledged < count) rd_kafka_poll(rk, 100);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
}
