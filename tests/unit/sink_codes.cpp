// core/verdict.cpp writes librdkafka's codes as numbers: each has the name here that it has there.
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include "core/verdict.hpp"
#include "sink/kafka/codes.hpp"

using namespace outbox;

namespace {

TEST(Codes, EveryVerdictBelongsToTheCodeItIsNamedAfter) {
    for (const core::VerdictRow& row : core::verdict_table()) {
        const auto code = static_cast<rd_kafka_resp_err_t>(row.code);
        EXPECT_STREQ(rd_kafka_err2name(code), row.name);
    }
}

TEST(Codes, EveryCodeHasWords) {
    const rd_kafka_err_desc* descriptions = nullptr;
    std::size_t count = 0;
    rd_kafka_get_err_descs(&descriptions, &count);
    for (std::size_t i = 0; i < count; i++) {
        if (descriptions[i].code == 0 || descriptions[i].name == nullptr) continue;
        EXPECT_FALSE(sink::kafka::words_of(descriptions[i].code).empty()) << descriptions[i].name;
    }
    EXPECT_FALSE(sink::kafka::words_of(12345).empty());
}

}  // namespace
