// The producer when things go wrong: each event's report, the words for it, and an end in bounded time.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "sink_mock.hpp"

using namespace outbox;
using namespace outbox::test;

namespace {

std::size_t count(const std::vector<Report>& reports, Verdict verdict) {
    std::size_t found = 0;
    for (const Report& report : reports) found += report.verdict == verdict ? 1 : 0;
    return found;
}

// A port that takes connections and says nothing.
class BlackHole {
public:
    BlackHole() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        if (bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(socket_, 16) != 0 ||
            getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
            throw std::runtime_error("no socket");
        }
        port_ = ntohs(address.sin_port);
    }
    ~BlackHole() { ::close(socket_); }
    std::string bootstrap() const { return "127.0.0.1:" + std::to_string(port_); }

private:
    int socket_;
    int port_ = 0;
};

TEST(Failures, PurgeReportsEveryEventAtOnceAsUnsentWhenNoBrokerIsThere) {
    const auto sink = sink::make_kafka(options_for("127.0.0.1:1"));
    for (std::uint32_t i = 0; i < 100; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    ASSERT_TRUE(eventually(*sink, [&] { return !sink->last_error().empty(); }));
    EXPECT_NE(sink->last_error().find("refused"), std::string::npos) << sink->last_error();
    const auto start = Clock::now();
    sink->purge();
    std::set<std::uint32_t> tags;
    for (const Report& report : wait_for(*sink, 100, seconds(5))) {
        EXPECT_EQ(report.verdict, Verdict::unsent);
        tags.insert(report.tag);
    }
    EXPECT_EQ(tags.size(), 100u);
    EXPECT_LT(Clock::now() - start, seconds(1));
    EXPECT_EQ(sink->outstanding(), 0u);
    // What was purged is to be made again, so nothing more goes in.
    Refusal why;
    EXPECT_EQ(send(*sink, OwnEvent("k", "v").event, 0, why), Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::outage);
    // The cause, not "purged".
    EXPECT_NE(sink->describe(RD_KAFKA_RESP_ERR__PURGE_QUEUE, "t").find("refused"), std::string::npos);
}

TEST(Failures, PurgeReportsWhatIsInFlightAsUnknown) {
    MockCluster mock;
    mock.topic("t", 1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    ASSERT_EQ(send(*sink, OwnEvent("k", "first").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
    // Stored, and acknowledged far too late.
    rd_kafka_mock_broker_push_request_error_rtts(mock.get(), 1, 0, 1, RD_KAFKA_RESP_ERR_NO_ERROR, 60'000);
    for (std::uint32_t i = 0; i < 10; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    std::size_t left = 1;
    ASSERT_TRUE(eventually(*sink, [&] {
        return rd_kafka_mock_broker_error_stack_cnt(mock.get(), 1, 0, &left) == RD_KAFKA_RESP_ERR_NO_ERROR && left == 0;
    }));
    sink->purge();
    const auto reports = wait_for(*sink, 10, seconds(5));
    EXPECT_EQ(reports.size(), 10u);
    EXPECT_GE(count(reports, Verdict::unknown), 1u);
    EXPECT_EQ(count(reports, Verdict::unknown) + count(reports, Verdict::unsent), 10u);
}

TEST(Failures, WhatIsRecalledHasNotLeftAndWhatHasLeftIsAcknowledged) {
    MockCluster mock;
    mock.topic("t", 1);
    core::SinkOptions options = options_for(mock.bootstrap());
    options.properties.emplace_back("batch.num.messages", "10");
    const auto sink = sink::make_kafka(options);
    ASSERT_EQ(send(*sink, OwnEvent("k", "first").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
    rd_kafka_mock_broker_set_rtt(mock.get(), 1, 500);
    rd_kafka_mock_broker_push_request_error_rtts(mock.get(), 1, 0, 1, RD_KAFKA_RESP_ERR_NO_ERROR, 0);
    for (std::uint32_t i = 0; i < 1000; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    std::size_t left = 1;
    ASSERT_TRUE(eventually(*sink, [&] {
        return rd_kafka_mock_broker_error_stack_cnt(mock.get(), 1, 0, &left) == RD_KAFKA_RESP_ERR_NO_ERROR && left == 0;
    }));
    sink->recall();
    Refusal why;
    EXPECT_EQ(send(*sink, OwnEvent("k", "v").event, 0, why), Accept::refused);
    const auto reports = wait_for(*sink, 1000, seconds(5));
    const std::size_t delivered = count(reports, Verdict::delivered);
    EXPECT_GE(delivered, 10u);
    EXPECT_LE(delivered, 50u);  // five requests
    EXPECT_EQ(delivered + count(reports, Verdict::unsent), 1000u);
    for (const Report& report : reports) EXPECT_EQ(report.verdict == Verdict::delivered, report.tag < delivered);
    rd_kafka_mock_broker_set_rtt(mock.get(), 1, 0);
    EXPECT_EQ(consume(mock.bootstrap(), "t", 1).size(), 1 + delivered);
}

TEST(Failures, CloseIsQuickWhenTheBrokerSaysNothing) {
    const BlackHole hole;
    const auto sink = sink::make_kafka(options_for(hole.bootstrap()));
    for (std::uint32_t i = 0; i < 1000; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    sink->inquire("t");
    EXPECT_EQ(wait_for(*sink, 1, milliseconds(300)).size(), 0u);
    sink->purge();
    EXPECT_EQ(wait_for(*sink, 1000, seconds(5)).size(), 1000u);
    const auto start = Clock::now();
    EXPECT_TRUE(sink->close(seconds(3)));
    EXPECT_LT(Clock::now() - start, seconds(2));
}

TEST(Failures, CloseWithEventsInFlightIsQuick) {
    MockCluster mock;
    mock.topic("t", 1);
    rd_kafka_mock_broker_set_rtt(mock.get(), 1, 60'000);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    for (std::uint32_t i = 0; i < 1000; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    EXPECT_EQ(wait_for(*sink, 1, milliseconds(300)).size(), 0u);
    const auto start = Clock::now();
    EXPECT_TRUE(sink->close(seconds(3)));
    EXPECT_LT(Clock::now() - start, seconds(2));
    EXPECT_EQ(sink->outstanding(), 0u);
    Report some[8];
    EXPECT_EQ(sink->collect(some), 0u);
}

TEST(Failures, CloseThatMayNotWaitSaysSoAndLeavesNothingBroken) {
    MockCluster mock;
    mock.topic("t", 1);
    for (int i = 0; i < 20; i++) {
        const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
        ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
        sink->flush();
        sink->close(milliseconds(0));
        EXPECT_TRUE(sink->close(seconds(5))) << "asked again, it waits again";
        EXPECT_EQ(sink::threads_alive(), 0);
    }
}

// Field report B39: an unknown topic fails by itself, with its cause, and takes nothing else along.
TEST(Failures, AnUnknownTopicFailsAloneAndSaysWhy) {
    MockCluster mock;
    mock.topic("good", 1);
    mock.topic_error("paymets", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    mock.answers_take(200);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap(), "x.{event_type}"));
    const auto start = Clock::now();
    ASSERT_EQ(send(*sink, OwnEvent("k", "v", "paymets").event, 1), Accept::queued);
    mock.answers_take(0);
    ASSERT_EQ(send(*sink, OwnEvent("k", "v", "good").event, 2), Accept::queued);
    sink->flush();
    const auto reports = wait_for(*sink, 2, seconds(10));
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_EQ(reports[0].tag, 2u);
    EXPECT_EQ(reports[0].verdict, Verdict::delivered);
    EXPECT_EQ(reports[1].verdict, Verdict::retry);
    const std::string words = sink->describe(reports[1].code, "paymets");
    EXPECT_NE(words.find("paymets: the topic does not exist"), std::string::npos) << words;
    EXPECT_LT(Clock::now() - start, seconds(2)) << "before stall_timeout, else the relay gives up on the producer";
    // Told at once from then on.
    Refusal why;
    EXPECT_EQ(send(*sink, OwnEvent("k", "v", "paymets").event, 3, why), Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::retry);
    EXPECT_EQ(send(*sink, OwnEvent("k", "v", "good").event, 4), Accept::queued);
}

TEST(Failures, AnUnknownTopicOfASinkWithOneTopicIsAnOutage) {
    MockCluster mock;
    mock.topic_error("t", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    mock.answers_take(200);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
    mock.answers_take(0);
    const auto reports = wait_for(*sink, 1, seconds(10));
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].verdict, Verdict::outage);
}

// On Kafka such an event fails by itself; the mock names partitions beside the error, and librdkafka waits.
TEST(Failures, ADeniedTopicIsExplainedByTheMetadata) {
    if (crashes_on_denied_topics()) GTEST_SKIP() << "this librdkafka crashes on the mock's answer";
    MockCluster mock;
    mock.topic_error("secret", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap(), "x.{event_type}"));
    ASSERT_EQ(send(*sink, OwnEvent("k", "v", "secret").event), Accept::queued);
    const auto words = [&] { return sink->describe(RD_KAFKA_RESP_ERR__PURGE_QUEUE, "secret"); };
    EXPECT_TRUE(eventually(*sink, [&] {
        sink->inquire("secret");
        return words() == "secret: Broker: Topic authorization failed";
    })) << words();
}

// What librdkafka knows of a missing topic it would look at again in five minutes.
TEST(Failures, ATopicThatIsCreatedLaterIsNoticedWithinSeconds) {
    MockCluster mock;
    mock.topic_error("late", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    mock.answers_take(200);
    auto options = options_for(mock.bootstrap(), "x.{event_type}");
    options.stall_timeout_ms = 100;
    const auto sink = sink::make_kafka(options);
    ASSERT_EQ(send(*sink, OwnEvent("k", "v", "late").event), Accept::queued);
    mock.answers_take(0);
    ASSERT_EQ(count(wait_for(*sink, 1), Verdict::retry), 1u);
    ASSERT_EQ(send(*sink, OwnEvent("k", "v", "late").event), Accept::refused);
    mock.topic_error("late", RD_KAFKA_RESP_ERR_NO_ERROR);
    ASSERT_TRUE(eventually(*sink, [&] { return send(*sink, OwnEvent("k", "v", "late").event) == Accept::queued; },
                           seconds(5)));
    sink->flush();
    EXPECT_EQ(count(wait_for(*sink, 1), Verdict::delivered), 1u);
}

// A topic turns up between two events of a key: the second must not be delivered while the first, which failed, waits
// to be sent again.
TEST(Failures, NothingOvertakesAnEventThatFailedForItsTopic) {
    MockCluster mock;
    mock.topic_error("late", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    mock.answers_take(200);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap(), "x.{event_type}"));
    ASSERT_EQ(send(*sink, OwnEvent("k", "first", "late").event, 1), Accept::queued);
    mock.answers_take(0);
    // The failure is there but not taken when the topic appears; asking for it brings the news to librdkafka.
    std::this_thread::sleep_for(milliseconds(2500));
    mock.topic_error("late", RD_KAFKA_RESP_ERR_NO_ERROR);
    for (int i = 0; i < 10; i++) {
        sink->inquire("late");
        std::this_thread::sleep_for(milliseconds(100));
    }
    Refusal why;
    EXPECT_EQ(send(*sink, OwnEvent("k", "second", "late").event, 2, why), Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::retry);
    const auto failed = wait_for(*sink, 1, seconds(5));
    ASSERT_EQ(failed.size(), 1u);
    EXPECT_EQ(failed[0].tag, 1u);
    EXPECT_EQ(failed[0].verdict, Verdict::retry);
    // Taken: now both go, in their order.
    ASSERT_EQ(send(*sink, OwnEvent("k", "first", "late").event, 1), Accept::queued);
    ASSERT_EQ(send(*sink, OwnEvent("k", "second", "late").event, 2), Accept::queued);
    sink->flush();
    EXPECT_EQ(count(wait_for(*sink, 2, seconds(10)), Verdict::delivered), 2u);
}

TEST(Failures, AStuckTopicIsExplainedByTheMetadata) {
    MockCluster mock;
    mock.topic("t", 2);
    rd_kafka_mock_partition_set_leader(mock.get(), "t", 0, -1);
    rd_kafka_mock_partition_set_leader(mock.get(), "t", 1, -1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
    sink->flush();
    EXPECT_TRUE(eventually(*sink, [&] {
        sink->inquire("t");
        return sink->describe(RD_KAFKA_RESP_ERR__PURGE_QUEUE, "t") == "t: 2 of 2 partitions have no leader";
    })) << sink->describe(RD_KAFKA_RESP_ERR__PURGE_QUEUE, "t");
}

// Field report B25
TEST(Failures, WhereEachIsSentAloneARefusalFailsNobodyElse) {
    MockCluster mock;
    mock.topic("t", 1);
    core::SinkOptions options = options_for(mock.bootstrap());
    options.alone = true;
    const auto sink = sink::make_kafka(options);
    ASSERT_EQ(send(*sink, OwnEvent("k", "first").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
    for (const auto code : {RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_NO_ERROR,
                            RD_KAFKA_RESP_ERR_INVALID_RECORD, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS}) {
        rd_kafka_mock_broker_push_request_error_rtts(mock.get(), 1, 0, 1, code, 50);
    }
    for (std::uint32_t i = 0; i < 100; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    const auto reports = wait_for(*sink, 100);
    ASSERT_EQ(reports.size(), 100u);
    for (const Report& report : reports) {
        EXPECT_EQ(report.verdict, report.tag == 1 || report.tag == 3 ? Verdict::poison
                                  : report.tag == 4                  ? Verdict::retry  // what could be repeated is not
                                                                     : Verdict::delivered)
            << report.tag;
    }
    EXPECT_FALSE(sink->fatal());
    EXPECT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
}

TEST(Failures, WhatTheBrokerWantsRepeatedIsRepeatedByTheProducer) {
    MockCluster mock;
    mock.topic("t", 1);
    const rd_kafka_resp_err_t errors[] = {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
                                          RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT};
    rd_kafka_mock_push_request_errors_array(mock.get(), 0, std::size(errors), errors);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    for (std::uint32_t i = 0; i < 10; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    EXPECT_EQ(count(wait_for(*sink, 10), Verdict::delivered), 10u);
}

// Field report B23
TEST(Failures, ABrokenSequenceMakesTheProducerFatalAndANewOneGoesOn) {
    for (const auto error : {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE}) {
        MockCluster mock;
        mock.topic("t", 1);
        auto sink = sink::make_kafka(options_for(mock.bootstrap()));
        ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
        sink->flush();
        ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
        EXPECT_EQ(sink->fatal_code(), 0);

        rd_kafka_mock_push_request_errors_array(mock.get(), 0, 1, &error);
        std::uint32_t queued = 0;
        for (std::uint32_t i = 0; i < 100; i++) queued += send(*sink, OwnEvent("k", "v").event, i) == Accept::queued;
        sink->flush();
        std::vector<Report> reports;
        ASSERT_TRUE(eventually(*sink, reports, [&] { return sink->fatal(); })) << rd_kafka_err2name(error);
        EXPECT_NE(sink->fatal_code(), 0);
        EXPECT_FALSE(sink->last_error().empty());
        sink->purge();
        append(reports, wait_for(*sink, sink->outstanding(), seconds(5)));
        EXPECT_EQ(reports.size(), queued) << "each has its report";
        EXPECT_GT(reports.size() - count(reports, Verdict::delivered), 0u);
        EXPECT_TRUE(sink->close(seconds(3)));

        sink = sink::make_kafka(options_for(mock.bootstrap()));
        ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
        sink->flush();
        EXPECT_EQ(count(wait_for(*sink, 1), Verdict::delivered), 1u);
    }
}

// A cluster that admits no idempotent producer: fatal for the producer, and a new one would not help.
TEST(Failures, AClusterThatRefusesProducersIsAnOutage) {
    MockCluster mock;
    mock.topic("t", 1);
    const std::vector<rd_kafka_resp_err_t> errors(20, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
    rd_kafka_mock_push_request_errors_array(mock.get(), 22, errors.size(), errors.data());
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    std::uint32_t queued = 0;
    for (std::uint32_t i = 0; i < 10; i++) queued += send(*sink, OwnEvent("k", "v").event, i) == Accept::queued;
    sink->flush();
    std::vector<Report> reports;
    ASSERT_TRUE(eventually(*sink, reports, [&] { return sink->fatal(); }));
    EXPECT_EQ(core::verdict_of(sink->fatal_code()), Verdict::outage);
    EXPECT_NE(sink->last_error().find("authorization"), std::string::npos) << sink->last_error();
    sink->purge();
    append(reports, wait_for(*sink, sink->outstanding(), seconds(5)));
    EXPECT_EQ(reports.size(), queued);
    EXPECT_EQ(count(reports, Verdict::delivered), 0u);
}

TEST(Failures, TheBrokerComesBackAndWhatWaitedIsDelivered) {
    MockCluster mock;
    mock.topic("t", 1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    ASSERT_EQ(send(*sink, OwnEvent("k", "0").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
    rd_kafka_mock_broker_set_down(mock.get(), 1);
    for (std::uint32_t i = 0; i < 100; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    ASSERT_TRUE(eventually(*sink, [&] { return !sink->last_error().empty(); }));
    rd_kafka_mock_broker_set_up(mock.get(), 1);
    EXPECT_EQ(count(wait_for(*sink, 100), Verdict::delivered), 100u);
    EXPECT_EQ(sink->last_error(), "") << "it is past";
}

TEST(Failures, AWrongNameSaysSo) {
    const auto sink = sink::make_kafka(options_for("no-such-host.invalid:9092"));
    ASSERT_TRUE(eventually(*sink, [&] { return sink->last_error().find("resolve") != std::string::npos; }))
        << sink->last_error();
}

}  // namespace
