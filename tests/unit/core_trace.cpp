#include "core/trace.hpp"

#include <gtest/gtest.h>

#include <string>

using namespace outbox::core;

namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kParent = "00f067aa0ba902b7";
const std::string kGood = "00-" + kTrace + "-" + kParent + "-01";

bool takes(const std::string& value) { return wrong_traceparent(value) == nullptr; }

}  // namespace

TEST(Trace, ATraceparentOfTheSpecification) {
    EXPECT_TRUE(takes(kGood));
    EXPECT_TRUE(takes("00-" + kTrace + "-" + kParent + "-00"));
    EXPECT_TRUE(takes("00-" + kTrace + "-" + kParent + "-ff")) << "flags that are yet to be given a meaning";
    EXPECT_TRUE(takes("")) << "none";
}

TEST(Trace, LaterVersionsMaySayMoreBehindAHyphen) {
    EXPECT_TRUE(takes("01" + kGood.substr(2)));
    EXPECT_TRUE(takes("cc" + kGood.substr(2) + "-what-comes"));
    EXPECT_FALSE(takes("cc" + kGood.substr(2) + ".what-comes"));
    EXPECT_FALSE(takes(kGood + "-more")) << "version 00 says no more";
    EXPECT_FALSE(takes("ff" + kGood.substr(2)));
    EXPECT_FALSE(takes("01" + kGood.substr(2) + "-\n"));
    EXPECT_FALSE(takes("01" + kGood.substr(2) + "-" + std::string(512, 'x')));
}

TEST(Trace, AnythingElseIsRefused) {
    for (std::size_t cut = 1; cut < kGood.size(); ++cut) EXPECT_FALSE(takes(kGood.substr(0, cut))) << cut;
    for (std::size_t at = 0; at < kGood.size(); ++at) {
        for (const char wrong : {'g', 'A', ' ', '\n', '\0', '\xff'}) {
            std::string value = kGood;
            value[at] = wrong;
            EXPECT_FALSE(takes(value)) << value;
        }
    }
    EXPECT_FALSE(takes("00-" + std::string(32, '0') + "-" + kParent + "-01"));
    EXPECT_FALSE(takes("00-" + kTrace + "-" + std::string(16, '0') + "-01"));
    EXPECT_FALSE(takes(" " + kGood));
    EXPECT_FALSE(takes(kGood + " "));
}

TEST(Trace, StateAndBaggageArePrintableAndBounded) {
    EXPECT_EQ(wrong_tracestate(""), nullptr);
    EXPECT_EQ(wrong_tracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE \"~"), nullptr);
    EXPECT_EQ(wrong_tracestate(std::string(512, 'x')), nullptr);
    EXPECT_NE(wrong_tracestate(std::string(513, 'x')), nullptr);
    EXPECT_EQ(wrong_baggage("userId=alice,serverNode=DF%2028;ttl=1, isProduction=false"), nullptr);
    EXPECT_EQ(wrong_baggage(std::string(8192, 'x')), nullptr);
    EXPECT_NE(wrong_baggage(std::string(8193, 'x')), nullptr);
    for (const char* wrong : {"a\n", "a\tb", "a\x7f", "caf\xc3\xa9"}) {
        EXPECT_NE(wrong_tracestate(wrong), nullptr);
        EXPECT_NE(wrong_baggage(wrong), nullptr);
    }
}
