#include "sink/http/signature.hpp"

#include <gtest/gtest.h>

#include "core/base64.hpp"
#include "core/http_options.hpp"
#include "core/uuid.hpp"
#include "sink/http/endpoint.hpp"

using namespace outbox;
using namespace std::chrono_literals;

namespace {

std::string key(const std::string& secret) {
    core::HttpOptions options;
    EXPECT_EQ(core::set_http_option(options, "secret", secret).message, "");
    return options.signing_keys.at(0);
}

// The values that the specification publishes.
TEST(Signature, IsThatOfTheSpecification) {
    const std::string first = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    EXPECT_EQ(sink::http::signatures({first}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})"),
              "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(Signature, EachKeySigns) {
    const std::string a(24, 'a'), b(64, 'b');
    const std::string one = sink::http::signatures({a}, "id", 1, "body"), two = sink::http::signatures({b}, "id", 1, "body");
    EXPECT_EQ(sink::http::signatures({a, b}, "id", 1, "body"), one + " " + two);
    EXPECT_EQ(sink::http::signatures({}, "id", 1, "body"), "");
    EXPECT_NE(one, sink::http::signatures({a}, "id", 2, "body"));
    EXPECT_NE(one, sink::http::signatures({a}, "ie", 1, "body"));
    EXPECT_NE(one, sink::http::signatures({a}, "id", 1, "bodz"));
}

TEST(Endpoint, ConcurrencyIsHalvedAndComesBackSlowly) {
    sink::http::Endpoint endpoint;
    endpoint.configure(8, 0, {});
    EXPECT_EQ(endpoint.at_once(), 8);
    endpoint.strained();
    EXPECT_EQ(endpoint.at_once(), 4);
    for (int i = 0; i < 5; i++) endpoint.strained();
    EXPECT_EQ(endpoint.at_once(), 1);
    for (int i = 0; i < 3; i++) endpoint.took();
    EXPECT_EQ(endpoint.at_once(), 1);
    endpoint.took();
    EXPECT_EQ(endpoint.at_once(), 2);
    for (int i = 0; i < 1000; i++) endpoint.took();
    EXPECT_EQ(endpoint.at_once(), 8) << "and no further";
    endpoint.strained();
    endpoint.configure(8, 0, {});
    EXPECT_EQ(endpoint.at_once(), 4) << "a new producer does not forget it";
}

TEST(Endpoint, TheRateIsKeptWhateverTheDemand) {
    sink::http::Endpoint endpoint;
    const auto start = sink::http::Endpoint::Clock::now();
    endpoint.configure(8, 100, start);
    int sent = 0;
    for (auto now = start; now < start + 10s; now += 1ms) {
        while (endpoint.take_turn(now)) sent++;
    }
    EXPECT_NEAR(sent, 1000, 2);
    // A pause is made up for by a tenth of a second's worth.
    int after = 0;
    while (endpoint.take_turn(start + 60s)) after++;
    EXPECT_LE(after, 11);
}

TEST(IdTogether, IsThatOfTheEventsInTheirOrder) {
    core::Event one, two;
    one.event_id.fill(1);
    two.event_id.fill(2);
    const core::Event *both[] = {&one, &two}, *turned[] = {&two, &one}, *fewer[] = {&one};
    const std::string id = sink::http::id_together(both);
    EXPECT_EQ(id, sink::http::id_together(both));
    EXPECT_NE(id, sink::http::id_together(turned));
    EXPECT_NE(id, sink::http::id_together(fewer));
    core::EventId parsed;
    ASSERT_TRUE(core::parse_uuid(id, parsed)) << id;
    EXPECT_EQ(parsed[6] >> 4, 8) << "version 8";
    EXPECT_EQ(parsed[8] >> 6, 2);
}

}  // namespace
