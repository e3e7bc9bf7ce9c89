// A Kafka cluster for tests: librdkafka's mock cluster in a process of its own, so that its threads and
// locks are not those of the program under test. Prints where it listens, then takes fault commands, one
// per line on standard input, and answers each with one line, "ok ..." or "error ...". Leaves at "quit" or
// at the end of its input, so it never outlives the test that started it.
//
//   mock_broker [--brokers N]
//   bootstrap.servers=127.0.0.1:40001
//
//   topic NAME PARTITIONS                   create a topic
//   topic_error NAME ERROR                  metadata answers ERROR for it; 0 clears
//   push_errors API ERROR[,ERROR...]        the next requests of that kind fail so (on any broker)
//   push_error_rtts BROKER API ERROR:MS...  the same on one broker, answered after MS milliseconds:
//                                           0:5000 stores the batch and acknowledges it too late
//   clear_errors API                        forget what push_errors left over
//   errors_left BROKER API                  how many of push_error_rtts are left
//   rtt BROKER MS                           every answer of that broker takes so long
//   down BROKER, up BROKER                  close its listener and connections; open it again
//   leader TOPIC PARTITION BROKER           move a partition; -1: no leader
//   api_version API MIN MAX                 what the brokers claim to speak; -1 -1 hides the request
//   quit
//
// API is a number or one of the names below; ERROR is a name as rd_kafka_err2name() gives it (_TRANSPORT
// closes the connection, as it does for mock errors in general), or a number; BROKER counts from 1, -1 is all.
//
// Not a Kafka: it stores a retried batch twice, checks no sequence numbers and creates unknown topics by
// itself unless topic_error says otherwise. Order and duplicates are judged on a real broker.
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

template <typename Int>
std::optional<Int> number(std::string_view text) {
    Int value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

std::optional<rd_kafka_resp_err_t> error_code(std::string_view text) {
    if (const auto value = number<int>(text)) return static_cast<rd_kafka_resp_err_t>(*value);
    const rd_kafka_err_desc* descriptions = nullptr;
    std::size_t count = 0;
    rd_kafka_get_err_descs(&descriptions, &count);
    for (std::size_t i = 0; i < count; i++) {
        if (descriptions[i].name != nullptr && text == descriptions[i].name) return descriptions[i].code;
    }
    return std::nullopt;
}

std::optional<std::int16_t> api_key(std::string_view text) {
    struct Api {
        std::string_view name;
        std::int16_t key;
    };
    static constexpr Api apis[] = {
        {"Produce", 0},       {"Fetch", 1},           {"ListOffsets", 2},      {"Metadata", 3},
        {"OffsetCommit", 8},  {"FindCoordinator", 10}, {"SaslHandshake", 17},   {"ApiVersions", 18},
        {"InitProducerId", 22}, {"AddPartitionsToTxn", 24}, {"EndTxn", 26},
    };
    for (const Api& api : apis) {
        if (text == api.name) return api.key;
    }
    return number<std::int16_t>(text);
}

class Commands {
public:
    explicit Commands(rd_kafka_mock_cluster_t* cluster) : cluster_(cluster) {}

    // The answer to one line, without "ok" or with "error".
    std::string run(const std::string& line) {
        std::istringstream words(line);
        std::vector<std::string> w;
        for (std::string word; words >> word;) w.push_back(word);
        const std::string& verb = w[0];

        if (verb == "topic" && w.size() == 3) {
            const auto partitions = number<int>(w[2]);
            if (!partitions || *partitions < 1) return bad(w[2]);
            return answer(rd_kafka_mock_topic_create(cluster_, w[1].c_str(), *partitions, 1));
        }
        if (verb == "topic_error" && w.size() == 3) {
            const auto error = error_code(w[2]);
            if (!error) return bad(w[2]);
            rd_kafka_mock_topic_set_error(cluster_, w[1].c_str(), *error);
            return "ok";
        }
        if (verb == "push_errors" && w.size() == 3) return push_errors(w);
        if (verb == "push_error_rtts" && w.size() >= 4) return push_error_rtts(w);
        if (verb == "clear_errors" && w.size() == 2) {
            const auto api = api_key(w[1]);
            if (!api) return bad(w[1]);
            rd_kafka_mock_clear_request_errors(cluster_, *api);
            return "ok";
        }
        if (verb == "errors_left" && w.size() == 3) {
            const auto broker = number<std::int32_t>(w[1]);
            const auto api = api_key(w[2]);
            if (!broker || !api) return bad(line);
            std::size_t count = 0;
            const auto error = rd_kafka_mock_broker_error_stack_cnt(cluster_, *broker, *api, &count);
            return error ? answer(error) : "ok " + std::to_string(count);
        }
        if (verb == "rtt" && w.size() == 3) {
            const auto broker = number<std::int32_t>(w[1]);
            const auto ms = number<int>(w[2]);
            if (!broker || !ms) return bad(line);
            return answer(rd_kafka_mock_broker_set_rtt(cluster_, *broker, *ms));
        }
        if ((verb == "down" || verb == "up") && w.size() == 2) {
            const auto broker = number<std::int32_t>(w[1]);
            if (!broker) return bad(w[1]);
            return answer(verb == "down" ? rd_kafka_mock_broker_set_down(cluster_, *broker)
                                         : rd_kafka_mock_broker_set_up(cluster_, *broker));
        }
        if (verb == "leader" && w.size() == 4) {
            const auto partition = number<std::int32_t>(w[2]);
            const auto broker = number<std::int32_t>(w[3]);
            if (!partition || !broker) return bad(line);
            return answer(rd_kafka_mock_partition_set_leader(cluster_, w[1].c_str(), *partition, *broker));
        }
        if (verb == "api_version" && w.size() == 4) {
            const auto api = api_key(w[1]);
            const auto lowest = number<std::int16_t>(w[2]);
            const auto highest = number<std::int16_t>(w[3]);
            if (!api || !lowest || !highest) return bad(line);
            return answer(rd_kafka_mock_set_apiversion(cluster_, *api, *lowest, *highest));
        }
        return "error unknown command or wrong number of words: " + line;
    }

private:
    static std::string bad(const std::string& what) { return "error not understood: " + what; }

    static std::string answer(rd_kafka_resp_err_t error) {
        return error == RD_KAFKA_RESP_ERR_NO_ERROR ? "ok" : std::string("error ") + rd_kafka_err2name(error);
    }

    std::string push_errors(const std::vector<std::string>& w) {
        const auto api = api_key(w[1]);
        if (!api) return bad(w[1]);
        std::vector<rd_kafka_resp_err_t> errors;
        std::istringstream names(w[2]);
        for (std::string name; std::getline(names, name, ',');) {
            const auto error = error_code(name);
            if (!error) return bad(name);
            errors.push_back(*error);
        }
        rd_kafka_mock_push_request_errors_array(cluster_, *api, errors.size(), errors.data());
        return "ok " + std::to_string(errors.size());
    }

    std::string push_error_rtts(const std::vector<std::string>& w) {
        const auto broker = number<std::int32_t>(w[1]);
        const auto api = api_key(w[2]);
        if (!broker || !api) return bad(w[1] + " " + w[2]);
        std::vector<std::pair<rd_kafka_resp_err_t, int>> answers;
        for (std::size_t i = 3; i < w.size(); i++) {
            const std::size_t colon = w[i].rfind(':');
            if (colon == std::string::npos) return bad(w[i]);
            const auto error = error_code(w[i].substr(0, colon));
            const auto ms = number<int>(std::string_view(w[i]).substr(colon + 1));
            if (!error || !ms) return bad(w[i]);
            answers.emplace_back(*error, *ms);
        }
        for (const auto& [error, ms] : answers) {
            const auto failed = rd_kafka_mock_broker_push_request_error_rtts(cluster_, *broker, *api, 1, error, ms);
            if (failed) return answer(failed);
        }
        return "ok " + std::to_string(answers.size());
    }

    rd_kafka_mock_cluster_t* cluster_;
};

}  // namespace

int main(int argc, char** argv) {
    int brokers = 1;
    for (int i = 1; i < argc; i++) {
        const auto value = i + 1 < argc ? number<int>(argv[i + 1]) : std::nullopt;
        if (std::strcmp(argv[i], "--brokers") == 0 && value && *value >= 1) {
            brokers = *value;
            i++;
        } else {
            std::fprintf(stderr, "usage: %s [--brokers N]\n", argv[0]);
            return 2;
        }
    }

    // The handle serves only as the cluster's engine. With Nagle on its sockets a batch of 100 takes 45 ms
    // whatever the client does.
    char error[256];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "socket.nagle.disable", "true", error, sizeof error) != RD_KAFKA_CONF_OK ||
        // Quiet: the handle itself is connected to nothing and would warn of that.
        rd_kafka_conf_set(conf, "log_level", "3", error, sizeof error) != RD_KAFKA_CONF_OK) {
        std::fprintf(stderr, "%s\n", error);
        return 1;
    }
    rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (rk == nullptr) {
        std::fprintf(stderr, "%s\n", error);
        return 1;
    }
    rd_kafka_mock_cluster_t* cluster = rd_kafka_mock_cluster_new(rk, brokers);
    if (cluster == nullptr) {
        std::fprintf(stderr, "no mock cluster\n");
        return 1;
    }
    std::printf("bootstrap.servers=%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    std::fflush(stdout);

    Commands commands(cluster);
    for (std::string line; std::getline(std::cin, line);) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        if (line == "quit") {
            std::printf("ok\n");
            break;
        }
        std::printf("%s\n", commands.run(line).c_str());
        std::fflush(stdout);
    }
    std::fflush(stdout);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
