// A bare librdkafka program, to hold a relay against (bench/drain.py): streams COUNT messages without waiting, counts the
// reports, and says how many were acknowledged in a second, its first second left out.
//
//   g++ -std=c++20 -O2 bench/bare_producer.cpp -lrdkafka -o bare_producer
//   bare_producer TOPIC COUNT SIZE property=value ...
//
// Key, headers and value have the lengths of what a relay sends with the format `payload`. Prints one line:
//
//   events/s  microseconds of CPU per event, all threads
#include <librdkafka/rdkafka.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

long acknowledged, acknowledged_before;
Clock::time_point began, counted_from;

void on_report(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        std::fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->err));
        std::exit(1);
    }
    acknowledged++;
    if (counted_from == Clock::time_point{} && Clock::now() - began >= std::chrono::seconds(1)) {
        counted_from = Clock::now();
        acknowledged_before = acknowledged;
    }
}

rd_kafka_headers_t* make_headers() {
    rd_kafka_headers_t* headers = rd_kafka_headers_new(3);
    rd_kafka_header_add(headers, "event_id", -1, "018f4e3a-7b1c-7def-8123-456789abcdef", -1);
    rd_kafka_header_add(headers, "event_type", -1, "order_captured", -1);
    rd_kafka_header_add(headers, "aggregate_type", -1, "order", -1);
    return headers;
}

double cpu_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: %s TOPIC COUNT SIZE property=value ...\n", argv[0]);
        return 2;
    }
    const long count = std::atol(argv[2]);
    std::string value(static_cast<std::size_t>(std::atol(argv[3])), 'x');
    char error[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    for (int i = 4; i < argc; i++) {
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

    began = Clock::now();
    for (long i = 0; i < count; i++) {
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
    const double seconds = std::chrono::duration<double>(Clock::now() - counted_from).count();
    if (counted_from == Clock::time_point{}) {
        std::fprintf(stderr, "it was over within a second: more messages are needed\n");
        return 1;
    }
    std::printf("%.0f %.2f\n", static_cast<double>(acknowledged - acknowledged_before) / seconds, cpu_seconds() / static_cast<double>(count) * 1e6);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
}
