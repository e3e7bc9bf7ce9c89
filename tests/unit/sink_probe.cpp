// outbox.test_sink against clusters that are well, not well, and not there.
#include <gtest/gtest.h>

#include <algorithm>

#include "sink_mock.hpp"

using namespace outbox;
using namespace outbox::test;
using sink::Check;

namespace {

std::vector<Check> probe(const core::SinkOptions& options, milliseconds limit = seconds(10)) {
    return sink::test_kafka(options, limit, nullptr);
}

void expect_check(const std::vector<Check>& checks, std::string_view name, bool ok, std::string_view words) {
    const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& c) { return c.name == name; });
    ASSERT_NE(found, checks.end()) << name;
    EXPECT_EQ(found->ok, ok) << found->detail;
    EXPECT_TRUE(found->detail.find(words) != std::string::npos) << found->detail;
}

TEST(Probe, AllIsWell) {
    MockCluster mock(2);
    mock.topic("t", 4);
    const auto checks = probe(options_for(mock.bootstrap()));
    expect_check(checks, "reachable", true, "2 brokers");
    expect_check(checks, "topic t", true, "4 partitions");
    for (const Check& check : checks) EXPECT_TRUE(check.ok) << check.name << ": " << check.detail;
    EXPECT_TRUE(consume(mock.bootstrap(), "t", 4).empty()) << "nothing is published";
}

TEST(Probe, ATemplateHasNoTopicToLookAt) {
    MockCluster mock;
    const auto checks = probe(options_for(mock.bootstrap(), ""));
    expect_check(checks, "topic", true, "outbox.event.{aggregate_type}");
}

TEST(Probe, TheTopicIsMissing) {
    MockCluster mock;
    mock.topic_error("t", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    expect_check(probe(options_for(mock.bootstrap())), "topic t", false, "Create the topic");
}

TEST(Probe, TheTopicIsDenied) {
    if (crashes_on_denied_topics()) GTEST_SKIP() << "this librdkafka crashes on the mock's answer";
    MockCluster mock;
    mock.topic_error("t", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    expect_check(probe(options_for(mock.bootstrap())), "topic t", false, "right WRITE");
}

TEST(Probe, ThePartitionsHaveNoLeader) {
    MockCluster mock;
    mock.topic("t", 1);
    rd_kafka_mock_partition_set_leader(mock.get(), "t", 0, -1);
    expect_check(probe(options_for(mock.bootstrap())), "topic t", false, "no leader");
}

TEST(Probe, TheClusterAdmitsNoProducer) {
    MockCluster mock;
    mock.topic("t", 1);
    const std::vector<rd_kafka_resp_err_t> errors(20, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
    rd_kafka_mock_push_request_errors_array(mock.get(), 22, errors.size(), errors.data());
    expect_check(probe(options_for(mock.bootstrap())), "may write", false, "IDEMPOTENT_WRITE");
}

TEST(Probe, NothingListens) {
    const auto start = Clock::now();
    const auto checks = probe(options_for("127.0.0.1:1"));
    expect_check(checks, "reachable", false, "Nothing listens there");
    EXPECT_EQ(checks.size(), 1u);
    EXPECT_LT(Clock::now() - start, seconds(5)) << "it does not wait for what will not come";
}

TEST(Probe, TheNameIsWrong) {
    expect_check(probe(options_for("no-such-host.invalid:9092")), "reachable", false, "Check the host names");
}

TEST(Probe, TheCredentialsDoNotFit) {
    MockCluster mock;  // knows no SASL
    auto options = options_for(mock.bootstrap());
    for (const auto& [name, value] : {std::pair{"security.protocol", "sasl_plaintext"}, {"sasl.mechanism", "PLAIN"},
                                      {"sasl.username", "relay"}, {"sasl.password", "opensesame"}}) {
        options.properties.emplace_back(name, value);
    }
    const auto checks = probe(options);
    expect_check(checks, "reachable", true, "");
    expect_check(checks, "credentials", false, "sasl_password");
    for (const Check& check : checks) EXPECT_EQ(check.detail.find("opensesame"), std::string::npos);
}

TEST(Probe, TheClusterIsSlowerThanTheLimit) {
    MockCluster mock;
    rd_kafka_mock_broker_set_rtt(mock.get(), 1, 20'000);
    const auto start = Clock::now();
    expect_check(probe(options_for(mock.bootstrap()), seconds(1)), "reachable", false, "No answer");
    EXPECT_LT(Clock::now() - start, seconds(3));
}

TEST(Probe, ACancelledProbeReturnsAtOnce) {
    MockCluster mock;
    rd_kafka_mock_broker_set_rtt(mock.get(), 1, 20'000);
    const auto start = Clock::now();
    sink::test_kafka(options_for(mock.bootstrap()), seconds(20), [] { return true; });
    EXPECT_LT(Clock::now() - start, seconds(1));
}

TEST(Probe, AWrongOptionIsSaidAndNothingIsTried) {
    auto options = options_for("127.0.0.1:1");
    options.properties.emplace_back("linger.ms", "soon");
    const auto checks = probe(options);
    expect_check(checks, "options", false, "linger.ms");
    EXPECT_EQ(checks.size(), 1u);
}

}  // namespace
