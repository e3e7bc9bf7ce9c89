// outbox.test_sink for an HTTP sink: one signed event of the type outbox.test, and what came back.
#include <poll.h>

#include <cstdio>
#include <random>
#include <stdexcept>

#include "core/http_status.hpp"
#include "core/uuid.hpp"
#include "sink/http/client.hpp"
#include "sink/http/request.hpp"
#include "sink/sink.hpp"

namespace outbox::sink {

namespace {

core::Event test_event() {
    core::Event event;
    std::random_device random;
    core::RandomBytes bytes;
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    event.created_at = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    event.event_id = core::make_uuid7(core::uuid7_ticks(event.created_at), bytes);
    event.event_type = "outbox.test";
    event.payload = R"({"test":true})";
    return event;
}

}  // namespace

std::vector<Check> test_http(const core::SinkOptions& given, std::chrono::milliseconds limit, bool (*cancelled)()) {
    using http::Clock;
    core::SinkOptions options = given;
    options.http.request_timeout_ms = std::min(options.http.request_timeout_ms, static_cast<int>(limit.count()));
    if (const core::OptionError error = core::check_server(options); !error.message.empty()) throw std::runtime_error(error.message);
    if (const core::OptionError error = core::check_http_mapping(options.http); !error.message.empty()) throw std::runtime_error(error.message);

    http::Handle handle(options);
    core::HttpMessage message;
    core::HttpEncoder(options).encode(test_event(), message);
    handle.prepare(message);
    int code = -1;
    http::Client client(1);
    client.add(handle.easy());
    const Clock::time_point end = Clock::now() + limit;
    while (code < 0 && Clock::now() < end && (cancelled == nullptr || !cancelled())) {
        pollfd fd{client.fd(), POLLIN, 0};
        poll(&fd, 1, 100);
        client.run([&code](void*, int c) { code = c; });
    }
    const bool cut = code < 0;
    client.remove(handle.easy());
    const http::Handle::Answer answer = handle.answer(cut ? 28 /* CURLE_OPERATION_TIMEDOUT */ : code);
    if (!answer.resolved) http::lookup_left_behind();

    std::vector<Check> checks;
    checks.push_back({"reachable", answer.connected, answer.connected ? "connected to " + (answer.address.empty() ? options.http.host : answer.address) : answer.words});
    if (!answer.connected) return checks;
    if (options.http.https) {
        checks.push_back({"TLS", answer.secured, answer.secured ? "the certificate is good for " + options.http.host : answer.words});
        if (!answer.secured) return checks;
    } else {
        checks.push_back({"TLS", true, "none: the sink's option allow_http is set"});
    }
    const bool taken = answer.status != 0 && core::verdict_of_status(answer.status) == core::Verdict::delivered;
    checks.push_back({"accepted", taken, answer.words + (options.http.signing_keys.empty() ? "; the event was not signed: the user mapping has no option secret" : "")});
    return checks;
}

}  // namespace outbox::sink
