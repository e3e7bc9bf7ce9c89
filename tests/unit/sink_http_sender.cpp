// The HTTP sink against a server of a few lines: order within a key, what is handed back, and what does not hold it up.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sink/sink.hpp"

using namespace outbox;
using namespace std::chrono_literals;
using core::Verdict;
using sink::Report;

// libcurl finds this one before libc's: a name server that does not answer.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** result) noexcept(false) {
    if (name != nullptr && std::string(name) == "hangs.example.com") {
        std::this_thread::sleep_for(5s);
        return EAI_AGAIN;
    }
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"))(name, service, hints, result);
}

namespace {

// Answers each request by its body, in a thread for each connection.
class Server {
public:
    using Decide = std::function<int(const std::string& body)>;  // a status
    explicit Server(Decide decide) : decide_(std::move(decide)) {
        socket_ = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
        EXPECT_EQ(listen(socket_, 100), 0);
        socklen_t length = sizeof at;
        getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &length);
        port_ = ntohs(at.sin_port);
        acceptor_ = std::thread([this] {
            for (;;) {
                const int connection = accept(socket_, nullptr, nullptr);
                if (connection < 0) return;
                std::lock_guard lock(mutex_);
                connections_.push_back(connection);
                threads_.emplace_back([this, connection] { serve(connection); });
            }
        });
    }
    ~Server() {
        shutdown(socket_, SHUT_RDWR);
        acceptor_.join();
        for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
        for (std::thread& thread : threads_) thread.join();
        close(socket_);
        for (const int connection : connections_) close(connection);
    }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }
    std::vector<std::string> bodies() {
        std::lock_guard lock(mutex_);
        return bodies_;
    }

private:
    void serve(int connection) {
        std::string in;
        char bytes[4096];
        for (;;) {
            std::size_t end;
            while ((end = in.find("\r\n\r\n")) == std::string::npos) {
                const ssize_t n = recv(connection, bytes, sizeof bytes, 0);
                if (n <= 0) return;
                in.append(bytes, static_cast<std::size_t>(n));
            }
            const std::size_t length = std::stoul(in.substr(in.find("Content-Length: ") + 16));
            while (in.size() < end + 4 + length) {
                const ssize_t n = recv(connection, bytes, sizeof bytes, 0);
                if (n <= 0) return;
                in.append(bytes, static_cast<std::size_t>(n));
            }
            const std::string body = in.substr(end + 4, length);
            in.erase(0, end + 4 + length);
            {
                std::lock_guard lock(mutex_);
                bodies_.push_back(body);
            }
            const std::string answer = "HTTP/1.1 " + std::to_string(decide_(body)) + " x\r\nContent-Length: 2\r\n\r\nhm";
            if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
        }
    }

    Decide decide_;
    int socket_ = -1, port_ = 0;
    std::thread acceptor_;
    std::mutex mutex_;
    std::vector<int> connections_;
    std::vector<std::thread> threads_;
    std::vector<std::string> bodies_;
};

core::SinkOptions options_for(const std::string& url, std::string name) {
    core::SinkOptions options(core::Kind::http);
    options.sink = std::move(name);
    options.http.url = url;
    options.http.host = "127.0.0.1";
    options.http.allow_http = options.http.allow_private = true;
    options.format = core::Format::cloudevents;  // the body is the payload alone
    return options;
}

core::Event event(std::string_view key, std::string_view payload) {
    core::Event e;
    e.aggregate_id = key;
    e.event_type = "written";
    e.payload = payload;
    return e;
}

std::map<std::uint32_t, Report> all_reports(sink::Sink& s, std::size_t count) {
    std::map<std::uint32_t, Report> reports;
    Report out[16];
    s.flush();
    for (const auto end = std::chrono::steady_clock::now() + 20s; reports.size() < count && std::chrono::steady_clock::now() < end;) {
        pollfd fd{s.fd(), POLLIN, 0};
        poll(&fd, 1, 1000);
        for (std::size_t n = s.collect(out), i = 0; i < n; i++) EXPECT_TRUE(reports.emplace(out[i].tag, out[i]).second) << "one report for each";
    }
    EXPECT_EQ(reports.size(), count);
    EXPECT_EQ(s.outstanding(), 0u);
    return reports;
}

void send(sink::Sink& s, std::uint32_t tag, std::string_view key, std::string_view payload) {
    sink::Refusal why;
    EXPECT_EQ(s.send(event(key, payload), tag, why), sink::Accept::queued) << why.reason;
}

TEST(HttpSender, AKeysEventsLeaveOneAfterTheOther) {
    std::atomic<int> at_once{0}, most{0};
    Server server([&](const std::string&) {
        most = std::max<int>(most, ++at_once);
        std::this_thread::sleep_for(2ms);
        at_once--;
        return 204;
    });
    const auto s = sink::make_http(options_for(server.url(), "order"));
    const std::vector<std::string> payloads{"1", "2", "3", "4", "5", "6", "7", "8"};
    for (std::uint32_t i = 0; i < payloads.size(); i++) send(*s, i, "k", payloads[i]);
    for (auto& [tag, report] : all_reports(*s, payloads.size())) EXPECT_EQ(report.verdict, Verdict::delivered) << report.words;
    EXPECT_EQ(server.bodies(), payloads);
    EXPECT_EQ(most, 1);
}

// The events of one request, which take the tags from `first` on.
void send_together(sink::Sink& s, std::uint32_t first, const std::vector<std::pair<const char*, const char*>>& keys_and_payloads) {
    std::vector<core::Event> events;
    std::vector<const core::Event*> pointers;
    std::vector<std::uint32_t> tags;
    for (const auto& [key, payload] : keys_and_payloads) {
        events.push_back(event(key, payload));
        tags.push_back(first++);
    }
    for (const core::Event& e : events) pointers.push_back(&e);
    sink::Refusal why;
    EXPECT_EQ(s.send_together(pointers, tags, why), sink::Accept::queued) << why.reason;
}

core::SinkOptions batch_for(const std::string& url, std::string name) {
    core::SinkOptions options = options_for(url, std::move(name));
    options.format = core::Format::webhook;
    options.http.batch = 10;
    return options;
}

// The payloads of a body, one digit or letter each.
std::string payloads_of(const std::string& body) {
    std::string payloads;
    for (std::size_t at = 0; (at = body.find("\"data\":", at)) != std::string::npos; at += 7) payloads += body[at + 7];
    return payloads;
}

TEST(HttpSender, ARequestOfSeveralWaitsForEachOfItsKeysAndEachWaitsForIt) {
    Server server([&](const std::string&) {
        std::this_thread::sleep_for(5ms);
        return 204;
    });
    const auto s = sink::make_http(batch_for(server.url(), "together"));
    send_together(*s, 0, {{"k", "1"}, {"l", "2"}, {"k", "3"}});
    send(*s, 3, "k", "4");
    send(*s, 4, "m", "5");
    send_together(*s, 5, {{"m", "6"}, {"l", "7"}});
    send(*s, 7, "l", "8");
    for (auto& [tag, report] : all_reports(*s, 8)) EXPECT_EQ(report.verdict, Verdict::delivered) << report.words;
    std::map<std::string, std::size_t> at;
    for (const std::string& body : server.bodies()) at.emplace(payloads_of(body), at.size());
    ASSERT_EQ(at.size(), 5u);
    EXPECT_LT(at.at("123"), at.at("4"));
    EXPECT_LT(at.at("123"), at.at("67"));
    EXPECT_LT(at.at("5"), at.at("67"));
    EXPECT_LT(at.at("67"), at.at("8"));
}

TEST(HttpSender, ARefusedRequestOfSeveralIsTakenApartInItsPlace) {
    Server server([](const std::string& body) { return payloads_of(body).find('9') != std::string::npos ? 422 : 200; });
    const auto s = sink::make_http(batch_for(server.url(), "apart"));
    send_together(*s, 0, {{"k", "1"}, {"l", "9"}, {"l", "3"}, {"k", "4"}, {"m", "5"}});
    send(*s, 5, "k", "6");
    send(*s, 6, "l", "7");
    auto reports = all_reports(*s, 7);
    for (const std::uint32_t tag : {0u, 3u, 4u, 5u}) EXPECT_EQ(reports[tag].verdict, Verdict::delivered) << tag;
    EXPECT_EQ(reports[1].verdict, Verdict::refused);
    for (const std::uint32_t tag : {2u, 6u}) EXPECT_EQ(reports[tag].verdict, Verdict::unsent) << tag;
    std::string of_k;
    for (const std::string& body : server.bodies()) {
        const std::string payloads = payloads_of(body);
        EXPECT_EQ(payloads.find_first_of("37"), payloads.size() > 1 ? 2u : std::string::npos) << payloads;
        if (payloads.size() == 1 && std::string("146").find(payloads) != std::string::npos) of_k += payloads;
    }
    EXPECT_EQ(of_k, "146");
}

TEST(HttpSender, WhatIsBehindAnyOfTheKeysOfAFailedEventIsHandedBack) {
    Server server([](const std::string&) {
        std::this_thread::sleep_for(20ms);
        return 422;
    });
    const auto s = sink::make_http(batch_for(server.url(), "behind"));
    send(*s, 0, "k", "1");
    send_together(*s, 1, {{"k", "2"}, {"l", "3"}});
    send(*s, 3, "l", "4");
    send_together(*s, 4, {{"l", "5"}, {"m", "6"}});
    auto reports = all_reports(*s, 6);
    EXPECT_EQ(reports[0].verdict, Verdict::refused);
    for (std::uint32_t tag = 1; tag < 6; tag++) EXPECT_EQ(reports[tag].verdict, Verdict::unsent) << tag;
    EXPECT_EQ(server.bodies().size(), 1u);
}

TEST(HttpSender, RequestsOfSeveralAreTakenBackWithOneReportForEachEvent) {
    std::atomic<bool> asked{false}, go{false};
    Server server([&](const std::string&) {
        asked = true;
        while (!go) std::this_thread::sleep_for(1ms);
        return 422;
    });
    core::SinkOptions options = batch_for(server.url(), "taken back");
    options.http.concurrency = 1;
    const auto s = sink::make_http(options);
    send_together(*s, 0, {{"k", "1"}, {"l", "2"}});
    send_together(*s, 2, {{"k", "3"}, {"m", "4"}});
    send_together(*s, 4, {{"n", "5"}, {"m", "6"}});
    while (!asked) s->flush();
    s->recall();
    go = true;
    for (auto& [tag, report] : all_reports(*s, 6)) {
        EXPECT_EQ(report.verdict, Verdict::unsent) << tag << ", and refused is not taken";
        EXPECT_EQ(report.code, tag < 2 ? 422 : 0) << tag << ": what was refused together is to go by itself";
    }
    EXPECT_EQ(server.bodies().size(), 1u);
}

TEST(HttpSender, WhatIsBehindARefusedEventOfItsKeyIsHandedBackUnsent) {
    Server server([](const std::string& body) { return body == "bad" ? 422 : 200; });
    const auto s = sink::make_http(options_for(server.url(), "refused"));
    send(*s, 0, "k", "bad");
    send(*s, 1, "k", "behind");
    send(*s, 2, "l", "other");
    send(*s, 3, {}, "none");  // no key, no order
    send(*s, 4, "k", "too");
    auto reports = all_reports(*s, 5);
    EXPECT_EQ(reports[0].verdict, Verdict::refused);
    EXPECT_EQ(reports[0].code, 422);
    EXPECT_EQ(reports[0].words, "HTTP 422 Unprocessable Content: hm");
    EXPECT_EQ(reports[1].verdict, Verdict::unsent);
    EXPECT_EQ(reports[4].verdict, Verdict::unsent);
    EXPECT_EQ(reports[2].verdict, Verdict::delivered);
    EXPECT_EQ(reports[3].verdict, Verdict::delivered);
    EXPECT_EQ(server.bodies().size(), 3u);
    // Once the caller knows, it may send to that key again.
    send(*s, 5, "k", "again");
    EXPECT_EQ(all_reports(*s, 1)[5].verdict, Verdict::delivered);
}

TEST(HttpSender, AfterAnEndpointsFaultNothingMoreLeavesAndWhatIsInFlightIsAnswered) {
    Server server([](const std::string& body) {
        if (body != "down") std::this_thread::sleep_for(100ms);
        return body == "down" ? 503 : 200;
    });
    auto options = options_for(server.url(), "outage");
    options.http.concurrency = 2;
    const auto s = sink::make_http(options);
    send(*s, 0, "a", "down");
    send(*s, 1, "b", "slow");
    for (std::uint32_t i = 2; i < 10; i++) send(*s, i, {}, "never");
    auto reports = all_reports(*s, 10);
    EXPECT_EQ(reports[0].verdict, Verdict::outage);
    EXPECT_EQ(reports[1].verdict, Verdict::delivered);
    for (std::uint32_t i = 2; i < 10; i++) EXPECT_EQ(reports[i].verdict, Verdict::unsent);
    EXPECT_EQ(server.bodies().size(), 2u);
    sink::Refusal why;
    EXPECT_EQ(s->send(event("c", "x"), 99, why), sink::Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::outage);
}

TEST(HttpSender, PurgeEndsAtOnceAndSaysWhatMayBeThere) {
    std::atomic<bool> over{false};
    Server server([&](const std::string&) {
        while (!over) std::this_thread::sleep_for(1ms);
        return 200;
    });
    auto options = options_for(server.url(), "purge");
    options.http.concurrency = 1;
    const auto s = sink::make_http(options);
    send(*s, 0, {}, "flies");
    send(*s, 1, {}, "waits");
    s->flush();
    for (Report none[1]; server.bodies().empty();) EXPECT_EQ(s->collect(none), 0u);
    s->purge();
    auto reports = all_reports(*s, 2);
    over = true;
    EXPECT_EQ(reports[0].verdict, Verdict::unknown);
    EXPECT_EQ(reports[1].verdict, Verdict::unsent);
    EXPECT_TRUE(s->close(0ms));
    EXPECT_EQ(sink::threads_alive(), 0);
}

TEST(HttpSender, ANameServerThatDoesNotAnswerHoldsNothingUp) {
    auto options = options_for("http://hangs.example.com/", "name");
    options.http.host = "hangs.example.com";
    options.http.connect_timeout_ms = 100;
    const auto start = std::chrono::steady_clock::now();
    {
        const auto s = sink::make_http(options);
        send(*s, 0, "k", "x");
        auto reports = all_reports(*s, 1);
        EXPECT_EQ(reports[0].verdict, Verdict::outage);
        EXPECT_NE(reports[0].words.find("hangs.example.com"), std::string::npos) << reports[0].words;
        EXPECT_FALSE(s->close(0ms)) << "a thread may still be at it";
    }
    EXPECT_GT(sink::threads_alive(), 0) << "the process leaves by _exit";
    EXPECT_LT(std::chrono::steady_clock::now() - start, 4s) << "the lookup takes 5 s";
}

}  // namespace
