// The producer on a mock cluster: what arrives, and what is reported.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "sink_mock.hpp"

using namespace outbox;
using namespace outbox::test;

namespace {

TEST(Producer, DeliversEveryEventAndReportsEachOnce) {
    MockCluster mock;
    mock.topic("t", 4);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    std::set<std::uint32_t> tags;
    for (int round = 0; round < 3; round++) {
        for (std::uint32_t i = 0; i < 1000; i++) {
            const OwnEvent own("key" + std::to_string(i % 50), std::to_string(i));
            ASSERT_EQ(send(*sink, own.event, round * 1000 + i), Accept::queued);
        }
        EXPECT_EQ(sink->outstanding(), 1000u);
        sink->flush();
        for (const Report& report : wait_for(*sink, 1000)) {
            EXPECT_EQ(report.verdict, Verdict::delivered);
            EXPECT_EQ(report.code, 0);
            EXPECT_TRUE(tags.insert(report.tag).second) << report.tag;
        }
        EXPECT_EQ(sink->outstanding(), 0u);
    }
    EXPECT_EQ(tags.size(), 3000u);
    EXPECT_EQ(sink->last_error(), "");
    EXPECT_FALSE(sink->fatal());
    std::map<std::string, int> last;
    const auto records = consume(mock.bootstrap(), "t", 4);
    ASSERT_EQ(records.size(), 3000u);
    for (const Record& record : records) {
        const int number = std::stoi(*record.value);
        if (const auto before = last.find(*record.key); before != last.end()) {
            EXPECT_EQ(number, (before->second + 50) % 1000) << *record.key;
        }
        last[*record.key] = number;
    }
}

TEST(Producer, AReportThatDoesNotFitKeepsTheDescriptorReadable) {
    MockCluster mock;
    mock.topic("t", 1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    for (std::uint32_t i = 0; i < 100; i++) ASSERT_EQ(send(*sink, OwnEvent("k", "v").event, i), Accept::queued);
    sink->flush();
    for (std::uint32_t i = 0; i < 100; i++) {
        pollfd ready{sink->fd(), POLLIN, 0};
        Report one[1];
        do {
            ASSERT_EQ(poll(&ready, 1, 10'000), 1) << "after " << i;
        } while (sink->collect(one) == 0);
        EXPECT_EQ(one[0].tag, i);
    }
    EXPECT_EQ(sink->outstanding(), 0u);
}

// Field report B08
TEST(Producer, KeysGoToThePartitionsThatJavaProducersUse) {
    MockCluster mock;
    mock.topic("t", 10);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    const std::map<std::string, int> expected = {{"order-1", 6}, {"order-2", 3}, {"order-3", 9}, {"cust:42", 4},
                                                 {"a", 4},       {"ключ", 4},    {"", 1}};
    for (const auto& [key, partition] : expected) ASSERT_EQ(send(*sink, OwnEvent(key, "v").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, expected.size()).size(), expected.size());
    const auto records = consume(mock.bootstrap(), "t", 10);
    ASSERT_EQ(records.size(), expected.size());
    for (const Record& record : records) {
        ASSERT_TRUE(record.key.has_value());
        EXPECT_EQ(record.partition, expected.at(*record.key)) << *record.key;
    }
}

// Field report B08
TEST(Producer, EventsWithoutKeySpreadOverPartitions) {
    MockCluster mock;
    mock.topic("t", 10);
    auto options = options_for(mock.bootstrap());
    options.properties.emplace_back("sticky.partitioning.linger.ms", "0");
    const auto sink = sink::make_kafka(options);
    OwnEvent own("", "v");
    own.event.aggregate_id = {};
    for (std::uint32_t i = 0; i < 200; i++) ASSERT_EQ(send(*sink, own.event, i), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 200).size(), 200u);
    std::set<int> partitions;
    for (const Record& record : consume(mock.bootstrap(), "t", 10)) {
        EXPECT_FALSE(record.key.has_value());
        partitions.insert(record.partition);
    }
    EXPECT_GT(partitions.size(), 3u);
}

// Field report B07
TEST(Producer, NullEmptyJsonNullAndEmptyObjectAreFourRecords) {
    MockCluster mock;
    mock.topic("t", 1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    OwnEvent tombstone("k", "");
    tombstone.event.payload = {};
    tombstone.event.headers = R"({"null": null, "empty": "", "text": "ä\"b"})";
    OwnEvent empty("k", "");
    empty.event.payload_is_json = false;
    ASSERT_EQ(send(*sink, tombstone.event), Accept::queued);
    ASSERT_EQ(send(*sink, empty.event), Accept::queued);
    ASSERT_EQ(send(*sink, OwnEvent("k", "null").event), Accept::queued);
    ASSERT_EQ(send(*sink, OwnEvent("k", "{}").event), Accept::queued);
    sink->flush();
    ASSERT_EQ(wait_for(*sink, 4).size(), 4u);
    const auto records = consume(mock.bootstrap(), "t", 1);
    ASSERT_EQ(records.size(), 4u);
    EXPECT_EQ(records[0].value, std::nullopt);
    EXPECT_EQ(records[1].value, "");
    EXPECT_EQ(records[2].value, "null");
    EXPECT_EQ(records[3].value, "{}");
    std::map<std::string, std::optional<std::string>> headers(records[0].headers.begin(), records[0].headers.end());
    EXPECT_EQ(headers.at("null"), std::nullopt);
    EXPECT_EQ(headers.at("empty"), "");
    EXPECT_EQ(headers.at("text"), "ä\"b");
    EXPECT_EQ(headers.at("event_type"), "x");
}

TEST(Producer, TheRecordTimeIsThatOfTheEventOrOfSending) {
    MockCluster mock;
    mock.topic("t", 1);
    auto options = options_for(mock.bootstrap());
    for (const auto timestamp : {core::Timestamp::created, core::Timestamp::sent}) {
        options.timestamp = timestamp;
        const auto sink = sink::make_kafka(options);
        ASSERT_EQ(send(*sink, OwnEvent("k", "v").event), Accept::queued);
        sink->flush();
        ASSERT_EQ(wait_for(*sink, 1).size(), 1u);
    }
    const auto records = consume(mock.bootstrap(), "t", 1);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].timestamp, 1'700'000'000'123);
    const auto now = std::chrono::system_clock::now().time_since_epoch() / milliseconds(1);
    EXPECT_LT(std::abs(records[1].timestamp - now), 60'000);
}

// Field report B21
TEST(Producer, AFullQueueIsBackPressure) {
    MockCluster mock;
    mock.topic("t", 1);
    auto options = options_for(mock.bootstrap());
    options.properties.emplace_back("queue.buffering.max.messages", "10");
    const auto sink = sink::make_kafka(options);
    std::set<std::uint32_t> tags;
    int full = 0;
    for (std::uint32_t i = 0; i < 5000;) {
        const OwnEvent own("k", std::to_string(i));
        const Accept accept = send(*sink, own.event, i);
        if (accept == Accept::queued) {
            i++;
            continue;
        }
        ASSERT_EQ(accept, Accept::full);
        full++;
        sink->flush();
        for (const Report& report : wait_for(*sink, 1)) {
            EXPECT_EQ(report.verdict, Verdict::delivered);
            EXPECT_TRUE(tags.insert(report.tag).second);
        }
    }
    sink->flush();
    for (const Report& report : wait_for(*sink, sink->outstanding())) tags.insert(report.tag);
    EXPECT_GT(full, 0);
    EXPECT_EQ(tags.size(), 5000u);
    const auto records = consume(mock.bootstrap(), "t", 1);
    ASSERT_EQ(records.size(), 5000u);
    for (int i = 0; i < 5000; i++) ASSERT_EQ(records[i].value, std::to_string(i));
}

// Field report B44: a list of headers is ours until it is taken.
TEST(Producer, RefusedAttemptsLeakNothing) {
    auto options = options_for("127.0.0.1:1");
    options.properties.emplace_back("queue.buffering.max.messages", "10");
    const auto sink = sink::make_kafka(options);
    OwnEvent own("k", "v");
    own.event.headers = R"({"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6", "g": "7", "h": "8"})";
    const auto resident = [] {
        long total = 0, pages = 0;
        FILE* file = std::fopen("/proc/self/statm", "r");
        EXPECT_EQ(std::fscanf(file, "%ld %ld", &total, &pages), 2);
        std::fclose(file);
        return pages;
    };
    const auto attempt = [&](int times) {
        for (int i = 0; i < times; i++) send(*sink, own.event, i);
    };
    attempt(2000);
    const long before = resident();
    attempt(50'000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory, and the first tells of leaks
    EXPECT_LT(resident() - before, 1000) << "pages of 4 kB; leaking would take 10,000";
#else
    static_cast<void>(before);
#endif
    EXPECT_EQ(sink->outstanding(), 10u);
}

// Field report B37
TEST(Producer, AnEventTooLargeForTheClientIsPoisonWithSizeAndLimit) {
    MockCluster mock;
    mock.topic("t", 1);
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    const OwnEvent large("key", std::string(2'000'000, 'x'));
    Refusal why;
    ASSERT_EQ(send(*sink, large.event, 0, why), Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::poison);
    EXPECT_EQ(why.code, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    EXPECT_NE(why.reason.find("t: "), std::string::npos) << why.reason;
    EXPECT_NE(why.reason.find("20000"), std::string::npos) << why.reason;
    EXPECT_NE(why.reason.find("1000000"), std::string::npos) << why.reason;
    EXPECT_EQ(why.reason.find("Broker"), std::string::npos) << why.reason;
    for (std::uint32_t i = 0; i < 10; i++) ASSERT_EQ(send(*sink, OwnEvent("key", "v").event, i), Accept::queued);
    sink->flush();
    EXPECT_EQ(wait_for(*sink, 10).size(), 10u);
}

TEST(Producer, AnEventTooLargeForTheQueueIsRefusedAndNotTriedForEver) {
    MockCluster mock;
    mock.topic("t", 1);
    auto options = options_for(mock.bootstrap());
    options.properties.emplace_back("queue.buffering.max.kbytes", "1");
    const auto sink = sink::make_kafka(options);
    const OwnEvent large("key", std::string(5'000, 'x'));
    Refusal why;
    ASSERT_EQ(send(*sink, large.event, 0, why), Accept::refused);
    EXPECT_NE(why.reason.find("queue.buffering.max.kbytes"), std::string::npos) << why.reason;
}

TEST(Producer, AnImpossibleTopicIsPoison) {
    MockCluster mock;
    const auto sink = sink::make_kafka(options_for(mock.bootstrap(), "events.{event_type}"));
    const std::vector<std::string> impossible = {"a b", "x/y", "..", "", std::string(300, 'x')};
    for (const std::string& topic : impossible) {
        OwnEvent own("k", "v");
        own.event.topic = topic;
        Refusal why;
        ASSERT_EQ(send(*sink, own.event, 0, why), Accept::refused) << topic;
        EXPECT_EQ(why.verdict, Verdict::poison);
        EXPECT_FALSE(why.reason.empty());
        EXPECT_LE(why.reason.size(), 200u);
    }
    EXPECT_EQ(sink->outstanding(), 0u);
}

TEST(Producer, HeadersThatAreNoFlatObjectArePoison) {
    MockCluster mock;
    const auto sink = sink::make_kafka(options_for(mock.bootstrap()));
    OwnEvent own("k", "v");
    own.event.headers = R"({"a": {"b": 1}})";
    Refusal why;
    ASSERT_EQ(send(*sink, own.event, 0, why), Accept::refused);
    EXPECT_EQ(why.verdict, Verdict::poison);
}

TEST(Producer, DestinationIsTheTopic) {
    const auto sink = sink::make_kafka(options_for("127.0.0.1:1", ""));
    OwnEvent own("k", "v");
    EXPECT_EQ(sink->destination(own.event), "outbox.events");
    own.event.aggregate_type = "payment";
    EXPECT_EQ(sink->destination(own.event), "outbox.event.payment");
    own.event.topic = "mine";
    EXPECT_EQ(sink->destination(own.event), "mine");
}

TEST(Producer, AWrongOptionIsNamedAndNoSecretIsRepeated) {
    const auto message = [](std::vector<std::pair<std::string, std::string>> properties) -> std::string {
        core::SinkOptions options;
        options.properties = std::move(properties);
        try {
            sink::make_kafka(options);
        } catch (const std::runtime_error& failed) {
            return failed.what();
        }
        return "";
    };
    EXPECT_NE(message({}).find("bootstrap_servers"), std::string::npos);
    EXPECT_NE(message({{"bootstrap.servers", "x"}, {"linger.ms", "soon"}}).find("linger.ms"), std::string::npos);
    EXPECT_NE(message({{"bootstrap.servers", "x"}, {"acks", "1"}}).find("acks"), std::string::npos);
    EXPECT_NE(message({{"bootstrap.servers", "x"}, {"plugin.library.paths", "/tmp/x"}}).find("plugin.library.paths"),
              std::string::npos);
    EXPECT_NE(message({{"bootstrap.servers", "x"}, {"sasl.password.file", "/no/such/file"}}).find("sasl.password.file"),
              std::string::npos);
    const std::string key = message(
        {{"bootstrap.servers", "x"}, {"security.protocol", "ssl"}, {"ssl.key.pem", "-----BEGIN opensesame-----"}});
    EXPECT_FALSE(key.empty());
    EXPECT_EQ(key.find("opensesame"), std::string::npos) << key;
}

// A signal for the server's process must never be taken by a thread that knows nothing of it.
TEST(Producer, ItsThreadsTakeNoSignals) {
    const auto masks = [] {
        // Read here: who starts a program for it has all signals blocked for a moment.
        std::map<std::string, std::string> found;
        for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
            std::ifstream status(thread.path() / "status");
            for (std::string line; std::getline(status, line);)
                if (line.starts_with("SigBlk:")) found[thread.path()] = line.substr(line.rfind('\t') + 1);
        }
        return found;
    };
    const auto before = masks();
    const auto sink = sink::make_kafka(options_for("127.0.0.1:1"));
    sink->inquire("t");
    int threads = 0;
    for (const auto& [thread, mask] : masks()) {
        if (before.contains(thread)) continue;
        threads++;
        // All but SIGKILL, SIGSTOP and the C library's own two.
        EXPECT_EQ(std::stoull(mask, nullptr, 16) | 0x1'8004'0100ULL, 0xffff'ffff'ffff'ffffULL) << mask;
    }
    EXPECT_GE(threads, 3);
    for (const auto& [thread, mask] : masks()) {
        if (before.contains(thread)) {
            EXPECT_EQ(mask, before.at(thread));
        }
    }
}

}  // namespace
