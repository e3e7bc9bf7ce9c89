// How fast the Kafka sink is, and what it adds to librdkafka: batches of n events sent, flushed and waited for, through
// the sink and through bare librdkafka with the same settings, on a mock cluster (tests/mock) or a real one.
//
//   g++ -std=c++20 -O2 -Isrc bench/sink_bench.cpp src/sink/kafka/*.cpp src/core/*.cpp -lrdkafka -pthread -o sink_bench
//   sink_bench BOOTSTRAP TOPIC [property=value ...]
//
// The topic must exist. Each line: batch size, events per second, microseconds of CPU per event (all threads of this
// process), and the time from the first send to the last report of a batch, median and 99th percentile.
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/wire.hpp"
#include "sink/kafka/config.hpp"
#include "sink/sink.hpp"

using namespace outbox;
using Clock = std::chrono::steady_clock;

namespace {

double cpu_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct Events {
    std::string payload;
    std::vector<std::string> keys;
    std::vector<core::Event> events;

    Events() {
        payload = R"({"order_id":4711,"amount":"19.99","currency":"EUR","status":"captured","note":")";
        std::srand(1);
        while (payload.size() < 298) payload += static_cast<char>('a' + std::rand() % 26);
        payload += "\"}";
        for (int i = 0; i < 1000; i++) keys.push_back("order-" + std::to_string(i));
        for (int i = 0; i < 1000; i++) {
            core::Event& event = events.emplace_back();
            event.id = i;
            for (std::size_t b = 0; b < event.event_id.size(); b++) event.event_id[b] = std::rand() & 0xFF;
            event.aggregate_id = keys[i];
            event.aggregate_type = "order";
            event.event_type = "order.captured";
            event.payload = payload;
            event.created_at = 1'700'000'000'000'000 + i;
            event.headers = R"({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})";
        }
    }
};

// One batch; false when something was not delivered.
template <typename Batch>
void measure(const char* what, int n, Batch batch) {
    const auto warm = Clock::now() + std::chrono::milliseconds(500);
    do batch();
    while (Clock::now() < warm);
    std::vector<double> times;
    const double cpu = cpu_seconds();
    const auto start = Clock::now();
    while (Clock::now() - start < std::chrono::milliseconds(2000)) {
        const auto begin = Clock::now();
        batch();
        times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double events = static_cast<double>(n) * static_cast<double>(times.size());
    std::sort(times.begin(), times.end());
    std::printf("%-10s n %6d  %8.0f/s  cpu %6.2f us  batch p50 %8.3f ms  p99 %8.3f ms\n", what, n, events / seconds,
                (cpu_seconds() - cpu) / events * 1e6, times[times.size() / 2], times[times.size() * 99 / 100]);
    std::fflush(stdout);
}

void through_sink(const core::SinkOptions& options, const Events& events, int n) {
    const auto sink = sink::make_kafka(options);
    std::vector<sink::Report> reports(1024);
    const auto take = [&](std::size_t& got) {
        const std::size_t count = sink->collect(reports);
        for (std::size_t i = 0; i < count; i++) {
            if (reports[i].verdict == core::Verdict::delivered) continue;
            std::fprintf(stderr, "not delivered: %s\n", sink->describe(reports[i].code).c_str());
            std::exit(1);
        }
        got += count;
    };
    measure("sink", n, [&] {
        std::size_t got = 0;
        for (int i = 0; i < n;) {
            sink::Refusal why;
            switch (sink->send(events.events[i % 1000], i, why)) {
                case sink::Accept::queued: i++; break;
                case sink::Accept::full: take(got); break;
                case sink::Accept::refused: std::fprintf(stderr, "refused: %s\n", why.reason.c_str()); std::exit(1);
            }
        }
        sink->flush();
        while (got < static_cast<std::size_t>(n)) {
            pollfd ready{sink->fd(), POLLIN, 0};
            poll(&ready, 1, 1000);
            take(got);
        }
    });
    sink->close(std::chrono::seconds(5));
}

// The same work without the sink: a prepared value and headers, reports counted by a callback, rd_kafka_flush.
struct Counter {
    int got = 0;
};
void count_report(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) std::exit(1);
    static_cast<Counter*>(opaque)->got++;
}

void bare(const core::SinkOptions& options, const Events& events, int n, bool streaming) {
    sink::kafka::Conf conf = sink::kafka::make_conf(options);
    Counter counter;
    rd_kafka_conf_set_events(conf.get(), 0);
    rd_kafka_conf_set_dr_msg_cb(conf.get(), count_report);
    rd_kafka_conf_set_opaque(conf.get(), &counter);
    char error[256];
    rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf.release(), error, sizeof error);
    rd_kafka_topic_t* topic = rd_kafka_topic_new(rk, options.topic.c_str(), nullptr);
    core::Encoder encoder({options.format, "/outbox"});
    encoder.encode(events.events[0]);
    const std::string value(encoder.value());
    const auto send = [&](const core::Event& event) {
        rd_kafka_headers_t* headers = rd_kafka_headers_new(encoder.headers().size());
        for (const auto& h : encoder.headers()) {
            rd_kafka_header_add(headers, h.name.data(), h.name.size(), h.value.data(), h.value.size());
        }
        while (rd_kafka_producev(rk, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                 RD_KAFKA_V_KEY(event.aggregate_id.data(), event.aggregate_id.size()),
                                 RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()),
                                 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR) {
            rd_kafka_poll(rk, 10);
        }
    };
    measure(streaming ? "streaming" : "bare", n, [&] {
        if (!streaming) counter.got = 0;
        for (int i = 0; i < n; i++) send(events.events[i % 1000]);
        if (streaming) {
            rd_kafka_poll(rk, 0);
        } else {
            while (counter.got < n) rd_kafka_flush(rk, 100);
        }
    });
    rd_kafka_flush(rk, 10'000);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s BOOTSTRAP TOPIC [property=value ...]\n", argv[0]);
        return 2;
    }
    core::SinkOptions options;
    options.topic = argv[2];
    options.database = "bench";
    options.sink = "kafka";
    options.properties.emplace_back("bootstrap.servers", argv[1]);
    for (int i = 3; i < argc; i++) {
        const char* const equals = std::strchr(argv[i], '=');
        if (equals == nullptr) return 2;
        options.properties.emplace_back(std::string(argv[i], equals - argv[i]), equals + 1);
    }
    const Events events;
    for (const int n : {1, 100, 1000, 10'000}) {
        bare(options, events, n, false);
        through_sink(options, events, n);
    }
    bare(options, events, 10'000, true);
}
