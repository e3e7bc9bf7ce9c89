// The table of properties: what a role without special rights may set, and what nobody may.
#include <gtest/gtest.h>

#include "sink/kafka/notices.hpp"
#include "sink/kafka/properties.hpp"
#include "sink/sink.hpp"

using namespace outbox;
using sink::check_property;
using sink::PropertyClass;
using sink::PropertyVerdict;

namespace {

PropertyVerdict check(std::string_view option, std::string_view value) {
    return check_property(option, value, false, false);
}

TEST(Properties, OrdinaryOnesAreFreeInBothSpellings) {
    const std::pair<const char*, const char*> ordinary[] = {
        {"bootstrap_servers", "localhost:9092"}, {"bootstrap.servers", "a:1,b:2"}, {"compression_type", "lz4"},
        {"compression.codec", "zstd"},           {"linger_ms", "20"},              {"batch_size", "100000"},
        {"message_max_bytes", "2000000"},        {"security_protocol", "SASL_SSL"}, {"sasl_mechanism", "PLAIN"},
        {"sasl_mechanisms", "SCRAM-SHA-256"},    {"sasl_username", "relay"},       {"client_id", "me"},
        {"partitioner", "consistent_random"},    {"acks", "all"},                  {"acks", "-1"},
        {"enable_idempotence", "true"},          {"max_in_flight", "5"},           {"max.in.flight.requests.per.connection", "1"},
        {"ssl_ca_pem", "x"},                     {"ssl_endpoint_identification_algorithm", "none"},
        {"queue_buffering_max_messages", "10"},  {"socket_timeout_ms", "1000"},    {"allow_auto_create_topics", "true"},
    };
    for (const auto& [option, value] : ordinary) {
        const PropertyVerdict verdict = check(option, value);
        EXPECT_EQ(verdict.what, PropertyClass::free) << option;
        EXPECT_EQ(verdict.error, "") << option;
    }
}

TEST(Properties, BothNamesOfOnePropertyGiveOneCanonicalName) {
    const std::pair<const char*, const char*> same[] = {
        {"bootstrap_servers", "metadata.broker.list"}, {"acks", "request_required_acks"},
        {"max_in_flight", "max.in.flight.requests.per.connection"}, {"sasl_mechanism", "sasl.mechanisms"},
        {"linger_ms", "queue.buffering.max.ms"}, {"retries", "message_send_max_retries"},
        {"compression_type", "compression_codec"}, {"message_timeout_ms", "delivery.timeout.ms"},
        {"sasl_oauthbearer_client_id", "sasl.oauthbearer.client.credentials.client.id"},
    };
    for (const auto& [one, other] : same) EXPECT_EQ(check(one, "x").property, check(other, "x").property) << one;
    EXPECT_EQ(check("sasl_password", "x").property, "sasl.password");
    EXPECT_EQ(check("log_level", "7").property, "log_level") << "librdkafka itself writes it so";
}

// Each voids a guarantee.
TEST(Properties, WhatVoidsAGuaranteeIsRefusedWithAHint) {
    const std::pair<const char*, const char*> ours[] = {
        {"acks", "0"},
        {"acks", "1"},
        {"request_required_acks", "1"},
        {"enable_idempotence", "false"},
        {"enable_gapless_guarantee", "false"},
        {"max_in_flight", "6"},
        {"max_in_flight_requests_per_connection", "1000000"},
        {"message_timeout_ms", "5000"},
        {"delivery_timeout_ms", "5000"},
        {"retries", "0"},
        {"message_send_max_retries", "3"},
        {"delivery_report_only_error", "true"},
        {"queuing_strategy", "lifo"},
        {"transactional_id", "x"},
        {"transaction_timeout_ms", "1000"},
        {"log_queue", "false"},
        {"log_level", "7"},
        {"debug", "all"},
        {"enabled_events", "0"},
        {"test_mock_num_brokers", "3"},
        {"test.mock.broker.rtt", "3"},
        {"internal_termination_signal", "15"},
        {"partitioner", "random"},
        {"api_version_request", "false"},
        {"topic_blacklist", ".*"},
        {"group_id", "g"},
        {"enable_auto_commit", "true"},
        {"auto_offset_reset", "earliest"},
        {"isolation_level", "read_committed"},
        {"fetch_min_bytes", "1"},
        {"opaque", "1"},
        {"default_topic_conf", "1"},
        {"error_cb", "1"},
        {"socket_cb", "1"},
        {"open.cb", "1"},
        {"resolve_cb", "1"},
        {"ssl_certificate_verify_cb", "1"},
        {"ssl_engine_callback_data", "1"},
        {"ssl_key", "1"},
        {"ssl_ca", "1"},
        {"interceptors", "1"},
        {"dr_msg_cb", "1"},
        {"msg_order_cmp", "1"},
        {"partitioner_cb", "1"},
    };
    for (const auto& [option, value] : ours) {
        for (const bool allowed : {false, true}) {
            const PropertyVerdict verdict = check_property(option, value, allowed, allowed);
            EXPECT_EQ(verdict.what, PropertyClass::ours) << option;
            EXPECT_FALSE(verdict.hint.empty()) << option;
        }
        EXPECT_NE(sink::kafka::why_never(option, value), "") << option;
    }
}

TEST(Properties, WhatLoadsCodeIsForNobody) {
    for (const char* option : {"plugin_library_paths", "plugin.library.paths", "ssl_engine_location", "ssl_engine_id",
                               "ssl.engine.location", "ssl_providers", "ssl.providers"}) {
        // The library would print this when it is loaded; that it is not even looked for is what counts.
        const PropertyVerdict verdict = check_property(option, "/no/such/library", true, true);
        EXPECT_EQ(verdict.what, PropertyClass::restricted_nobody) << option;
        EXPECT_EQ(verdict.error, "") << option << ": librdkafka was not asked";
        EXPECT_NE(sink::kafka::why_never(option, "x"), "") << option;
    }
}

TEST(Properties, WhatEndsInAShellCommandIsForProgramRunners) {
    for (const char* option : {"sasl_kerberos_kinit_cmd", "sasl_kerberos_principal", "sasl_kerberos_keytab"}) {
        EXPECT_EQ(check_property(option, "x; touch /tmp/y", false, true).what, PropertyClass::restricted_program)
            << option;
        const PropertyVerdict allowed = check_property(option, "x", true, false);
        EXPECT_EQ(allowed.what, PropertyClass::restricted_program) << option;
        EXPECT_EQ(allowed.error, "") << option;
        EXPECT_EQ(sink::kafka::why_never(option, "x"), "") << option;
    }
}

TEST(Properties, WhatNamesFilesOrAddressesIsForFileReaders) {
    for (const char* option :
         {"ssl_key_location", "ssl_certificate_location", "ssl_ca_location", "ssl_crl_location", "ssl_keystore_location",
          "https_ca_location", "sasl_password_file", "sasl_oauthbearer_token_endpoint_url",
          "sasl_oauthbearer_assertion_private_key_file", "sasl_oauthbearer_assertion_file",
          "sasl_oauthbearer_assertion_jwt_template_file", "sasl_oauthbearer_metadata_authentication_type"}) {
        EXPECT_EQ(check_property(option, "/etc/passwd", true, false).what, PropertyClass::restricted_files) << option;
    }
    EXPECT_EQ(check_property("ssl_ca_location", "/etc/ssl/certs", false, true).error, "");
    EXPECT_EQ(check_property("sasl_password_file", "/run/secrets/kafka", false, true).error, "");
    EXPECT_NE(check_property("sasl_password_file", "kafka", false, true).error, "");
}

TEST(Properties, WhatTheTableDoesNotListIsForNobody) {
    for (const char* option : {"builtin_features", "builtin.features"}) {
        const PropertyVerdict verdict = check_property(option, "x", true, true);
        EXPECT_EQ(verdict.what, PropertyClass::restricted_nobody) << option;
        EXPECT_NE(sink::kafka::why_never(option, "x"), "") << option;
    }
}

TEST(Properties, AnUnknownNameIsNamedWithItsNearest) {
    const PropertyVerdict verdict = check("bootstrap_server", "x");
    EXPECT_EQ(verdict.what, PropertyClass::unknown);
    EXPECT_NE(verdict.error.find("bootstrap.server"), std::string::npos) << verdict.error;
    EXPECT_NE(verdict.hint.find("bootstrap_servers"), std::string::npos) << verdict.hint;
    EXPECT_EQ(check("compresion_type", "lz4").hint, "Perhaps you meant the option \"compression_type\".");
    EXPECT_EQ(check("topics", "x").hint, "Perhaps you meant the option \"topic\".");
    EXPECT_EQ(check("batchsize", "1").hint, "Perhaps you meant the option \"batch_size\".");
    EXPECT_EQ(check("xyzzy", "1").hint, "");
    EXPECT_EQ(check("", "1").what, PropertyClass::unknown);
    EXPECT_EQ(check(std::string(5000, 'a'), "1").what, PropertyClass::unknown);
}

TEST(Properties, ABadValueIsAnErrorThatDoesNotRepeatIt) {
    for (const auto& [option, value] : {std::pair{"linger_ms", "soonish"}, {"compression_type", "winzip"},
                                        {"security_protocol", "carrierpigeon"}, {"batch_size", "-12345678"}}) {
        const PropertyVerdict verdict = check(option, value);
        EXPECT_EQ(verdict.what, PropertyClass::free) << option;
        EXPECT_NE(verdict.error, "") << option;
        EXPECT_EQ(verdict.error.find(value), std::string::npos) << verdict.error;
    }
}

TEST(Properties, SecretsAreToldByTheirNames) {
    for (const char* option :
         {"sasl_password", "sasl.password", "ssl_key_password", "ssl_keystore_password", "ssl_key_pem",
          "sasl_oauthbearer_client_secret", "sasl_oauthbearer_client_credentials_client_secret",
          "sasl_oauthbearer_config", "sasl_oauthbearer_assertion_private_key_passphrase",
          "sasl_oauthbearer_assertion_private_key_pem", "some.future.password"}) {
        EXPECT_TRUE(check(option, "x").secret) << option;
    }
    for (const char* option : {"sasl_username", "ssl_certificate_pem", "ssl_key_location", "sasl_password_file",
                               "sasl_oauthbearer_assertion_private_key_file", "bootstrap_servers"}) {
        EXPECT_FALSE(check(option, "x").secret) << option;
    }
}

TEST(Notices, ALineIsShortPrintableAndWithoutSecrets) {
    using sink::kafka::clean_text;
    EXPECT_EQ(clean_text("a\nb\tc\x01", {}), "a b c?");
    EXPECT_EQ(clean_text("user relay password opensesame!", {"opensesame"}), "user relay password ***!");
    EXPECT_EQ(clean_text("tail:  ", {}), "tail");
    EXPECT_EQ(clean_text("verweigert \xc3\xbc \xff", {}), "verweigert ü ?");
    const std::string cut = clean_text(std::string(1000, 'x'), {});
    EXPECT_LE(cut.size(), sink::kafka::kMaxText);
    EXPECT_TRUE(cut.ends_with("..."));
    for (std::size_t length = 190; length < 210; length++) {
        std::string umlauts;
        while (umlauts.size() < length) umlauts += "ü";
        EXPECT_LE(clean_text(umlauts, {}).size(), sink::kafka::kMaxText);
    }
}

TEST(Notices, ACauseOutranksItsConsequence) {
    sink::kafka::Notices notices({});
    notices.log("FAIL", "[thrd:b:1/bootstrap]: b:1/bootstrap: something in the log");
    EXPECT_EQ(notices.text(), "b:1/bootstrap: something in the log");
    notices.error(-195, "connection refused");
    EXPECT_EQ(notices.text(), "connection refused");
    notices.error(-169, "authentication failed");
    notices.error(-187, "1/1 brokers are down");
    notices.error(-195, "connection refused");
    notices.log("FAIL", "noise");
    EXPECT_EQ(notices.text(), "authentication failed");
    notices.log("CLOSETEST", "everyday");
    notices.clear();
    EXPECT_EQ(notices.text(), "");
    notices.error(-187, "1/1 brokers are down");
    EXPECT_EQ(notices.text(), "1/1 brokers are down");
    notices.error(-150, "fatal");
    notices.clear();
    EXPECT_EQ(notices.text(), "fatal") << "a producer does not get well again";
}

}  // namespace
