#include "core/verdict.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

using namespace outbox::core;

namespace {

// The table once more, by name, as the issue demands it.
const std::map<std::string, std::set<std::string>> kWanted = {
    {"delivered", {"NO_ERROR"}},
    {"unsent", {"_PURGE_QUEUE"}},
    {"unknown", {"_MSG_TIMED_OUT", "_PURGE_INFLIGHT", "_DESTROY"}},
    {"retry",
     {"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED",
      "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "THROTTLING_QUOTA_EXCEEDED", "POLICY_VIOLATION",
      "TOPIC_EXCEPTION"}},
    {"outage",
     {"CLUSTER_AUTHORIZATION_FAILED", "_AUTHENTICATION", "_SSL", "_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN",
      "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_VERSION",
      "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}},
    {"poison", {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG"}},
    {"fatal",
     {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE", "_FENCED",
      "PRODUCER_FENCED", "_FATAL", "_INCONSISTENT"}},
};

bool is_listed(std::int32_t code) {
    for (const VerdictRow& row : verdict_table()) {
        if (row.code == code) return true;
    }
    return false;
}

std::int32_t code_of(const std::string& name) {
    for (const VerdictRow& row : verdict_table()) {
        if (row.name == name) return row.code;
    }
    ADD_FAILURE() << name << " is not in the table";
    return 0;
}

}  // namespace

TEST(Verdict, EachRowIsWhatTheIssueSays) {
    std::map<std::string, std::set<std::string>> got;
    for (const VerdictRow& row : verdict_table()) {
        got[name(row.verdict)].insert(row.name);
        EXPECT_EQ(verdict_of(row.code), row.verdict) << row.name;
    }
    EXPECT_EQ(got, kWanted);
}

TEST(Verdict, AnUnlistedCodeIsAnOutageNeverPoison) {
    for (std::int32_t code = -300; code <= 300; ++code) {
        if (!is_listed(code)) {
            EXPECT_EQ(verdict_of(code), Verdict::outage) << code;
        }
    }
    EXPECT_EQ(verdict_of(INT32_MAX), Verdict::outage);
    EXPECT_EQ(verdict_of(INT32_MIN), Verdict::outage);
}

TEST(Verdict, OnlyZeroIsDelivered) {
    for (const VerdictRow& row : verdict_table())
        EXPECT_EQ(row.verdict == Verdict::delivered, row.code == 0) << row.name;
}

TEST(Verdict, AnUnknownTopicIsAnOutageWhereTheSinkHasOne) {
    for (const char* topic : {"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION"}) {
        EXPECT_EQ(verdict_of(code_of(topic), true), Verdict::outage) << topic;
        EXPECT_EQ(verdict_of(code_of(topic), false), Verdict::retry) << topic;
    }
    EXPECT_EQ(verdict_of(code_of("TOPIC_AUTHORIZATION_FAILED"), true), Verdict::retry);
    EXPECT_EQ(verdict_of(code_of("MSG_SIZE_TOO_LARGE"), true), Verdict::poison);
    EXPECT_EQ(verdict_of(0, true), Verdict::delivered);
}

TEST(Verdict, ACorruptMessageIsTriedAgainFirst) {
    for (const VerdictRow& row : verdict_table()) {
        EXPECT_EQ(worth_another_try(row.code), std::string(row.name) == "INVALID_MSG") << row.name;
    }
}
