#include "core/http_options.hpp"

#include <gtest/gtest.h>

#include "core/options.hpp"

using namespace outbox::core;

namespace {

HttpOptions set(std::string_view option, std::string_view value) {
    HttpOptions options;
    const OptionError error = set_http_option(options, option, value);
    EXPECT_EQ(error.option, "") << error.message;
    return options;
}

OptionError refusal(std::string_view option, std::string_view value) {
    HttpOptions options;
    const OptionError error = set_http_option(options, option, value);
    EXPECT_EQ(error.option, option) << value;
    EXPECT_FALSE(error.hint.empty());
    EXPECT_EQ(options, HttpOptions()) << "an error changes nothing";
    return error;
}

}  // namespace

TEST(HttpOptions, AUrlIsTakenApart) {
    EXPECT_EQ(set("url", "https://Example.COM/hooks?a=b").host, "example.com");
    EXPECT_TRUE(set("url", "HTTPS://example.com").https);
    EXPECT_EQ(set("url", "http://127.0.0.1:8080/x").host, "127.0.0.1");
    EXPECT_FALSE(set("url", "http://127.0.0.1:8080/x").https);
    EXPECT_EQ(set("url", "https://[::1]:8443/x").host, "::1");
    EXPECT_EQ(set("url", "https://h?q").host, "h");
}

// What two readers could read in two ways is refused, and credentials have their own place.
TEST(HttpOptions, OddUrlsAreRefused) {
    for (const char* url : {"", "example.com", "ftp://h/", "file:///etc/passwd", "gopher://h", "https://", "https:///x", "https://u@h/", "https://u:p@h/",
                            "https://h/#f", "https://h /", "https://h/ x", "https://h\\@evil/", "https://h:0/", "https://h:65536/", "https://h:/", "https://h:1x/",
                            "https://[::1", "https://[x]/", "https://[]/", "https://h\n/", "https://h\xc3\xbc/", "https://a,b/", "https:/h", "https//h"})
        refusal("url", url);
}

TEST(HttpOptions, ValuesInTheirBounds) {
    EXPECT_EQ(set("concurrency", "256").concurrency, 256);
    EXPECT_EQ(set("batch", "1000").batch, 1000);
    EXPECT_EQ(set("connect_timeout", "100ms").connect_timeout_ms, 100);
    EXPECT_EQ(set("request_timeout", "1min").request_timeout_ms, 60'000);
    EXPECT_EQ(set("attempts", "1").attempts, 1);
    EXPECT_EQ(set("rate_limit", "0").rate_limit, 0);
    EXPECT_EQ(set("retry_after_limit", "24h").retry_after_limit_ms, 24 * 3'600'000);
    EXPECT_TRUE(set("allow_http", "true").allow_http);
    EXPECT_TRUE(set("allow_private", "on").allow_private);
    EXPECT_TRUE(set("idempotency_key", "yes").idempotency_key);
    for (const auto& [option, value] : {std::pair{"concurrency", "0"}, {"concurrency", "257"}, {"attempts", "0"}, {"attempts", "x"}, {"rate_limit", "-1"},
                                        {"request_timeout", "0s"}, {"request_timeout", "15"}, {"allow_http", "maybe"}, {"retry_after_limit", "25h"}})
        refusal(option, value);
}

TEST(HttpOptions, StaticHeadersAreLegalAndNobodyElses) {
    EXPECT_EQ(set("headers", R"({"X-Source": "payments", "x-empty": ""})").headers.size(), 2u);
    for (const char* value : {"[]", "x", R"({"a b": "c"})", R"({"a": "b\r\nc: d"})", R"({"a": null})", R"({"a": 1})", R"({"Authorization": "Bearer x"})",
                              R"({"cookie": "x"})", R"({"Host": "x"})", R"({"content-length": "1"})", R"({"Webhook-Id": "1"})", R"({"a": " b"})"})
        refusal("headers", value);
}

TEST(HttpOptions, SecretsAreDecodedAndNeverShown) {
    // 24 and 64 bytes, and one byte too few and too many.
    const std::string of24 = "whsec_" + std::string(32, 'A'), of64 = "whsec_" + std::string(84, 'A') + "AA==";
    const HttpOptions two = set("secret", " " + of24 + "  " + of64 + " ");
    ASSERT_EQ(two.signing_keys.size(), 2u);
    EXPECT_EQ(two.signing_keys[0].size(), 24u);
    EXPECT_EQ(two.signing_keys[1].size(), 64u);
    for (const std::string& value : {std::string(), std::string(" "), std::string("sesame-open-now"), "whsec_" + std::string(28, 'A') + "AAA=",
                                     "whsec_" + std::string(84, 'A') + "AAA=", std::string("whsec_%%%%"), of24 + ",sesame", "whsec_" + std::string(33, 'A')}) {
        const OptionError error = refusal("secret", value);
        EXPECT_EQ(error.message.find("sesame"), std::string::npos);
        EXPECT_EQ(error.message.find("AAAA"), std::string::npos);
    }
    for (const char* secret : {"secret", "bearer_token", "username", "password", "client_certificate", "client_key"}) EXPECT_TRUE(is_http_secret(secret));
    EXPECT_FALSE(is_http_secret("url"));
    EXPECT_EQ(refusal("bearer_token", "sesame\n").message.find("sesame"), std::string::npos);
    EXPECT_EQ(refusal("client_key", "/etc/sesame").message.find("sesame"), std::string::npos);
}

TEST(HttpOptions, WhatBelongsTogether) {
    HttpOptions o;
    EXPECT_EQ(check_http_server(o).option, "url");
    set_http_option(o, "url", "http://h/");
    EXPECT_EQ(check_http_server(o).option, "url");
    set_http_option(o, "allow_http", "true");
    EXPECT_EQ(check_http_server(o).option, "");
    EXPECT_EQ(check_http_mapping(o).option, "");
    set_http_option(o, "username", "u");
    EXPECT_EQ(check_http_mapping(o).option, "password");
    set_http_option(o, "password", "p");
    EXPECT_EQ(check_http_mapping(o).option, "");
    set_http_option(o, "bearer_token", "t");
    EXPECT_EQ(check_http_mapping(o).option, "bearer_token");
}

TEST(HttpOptions, ASinkOfThatKindHasThemAndTheCommonOnes) {
    SinkOptions o(Kind::http);
    EXPECT_EQ(o.format, Format::webhook);
    EXPECT_EQ(o.batch_size, kHttpBatchEvents);
    for (const char* option : {"url", "secret", "events", "lanes", "home"}) EXPECT_TRUE(is_own_option(option, Kind::http)) << option;
    for (const char* option : {"topic", "timestamp", "bootstrap_servers"}) EXPECT_FALSE(is_own_option(option, Kind::http)) << option;
    EXPECT_FALSE(is_own_option("url"));
    EXPECT_EQ(set_option(o, "format", "envelope").option, "format");
    EXPECT_EQ(set_option(o, "format", "cloudevents").option, "");
    EXPECT_EQ(set_option(o, "topic", "t").option, "topic");
    EXPECT_EQ(set_option(o, "url", "https://h/").option, "");
    EXPECT_EQ(o.http.host, "h");
}
