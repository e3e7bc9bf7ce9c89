#include "sink/kafka/metadata.hpp"

#include <librdkafka/rdkafka.h>

#include <memory>

#include "sink/kafka/codes.hpp"
#include "sink/kafka/handle.hpp"

namespace outbox::sink::kafka {

namespace {

struct ReleaseMetadata {
    void operator()(const struct rd_kafka_metadata* metadata) const noexcept { rd_kafka_metadata_destroy(metadata); }
};

std::string thin_partition(const rd_kafka_metadata_topic& topic) {
    const rd_kafka_metadata_partition* thin = nullptr;
    for (int i = 0; i < topic.partition_cnt; i++) {
        const rd_kafka_metadata_partition& partition = topic.partitions[i];
        if (partition.isr_cnt < partition.replica_cnt && (thin == nullptr || partition.isr_cnt < thin->isr_cnt)) {
            thin = &partition;
        }
    }
    if (thin == nullptr) return {};
    return "partition " + std::to_string(thin->id) + " has " + std::to_string(thin->isr_cnt) + " of " +
           std::to_string(thin->replica_cnt) + " replicas in sync";
}

int fewest_in_sync(const rd_kafka_metadata_topic& topic) {
    int fewest = 0;
    for (int i = 0; i < topic.partition_cnt; i++) {
        const int in_sync = topic.partitions[i].isr_cnt;
        if (fewest == 0 || in_sync < fewest) fewest = in_sync;
    }
    return fewest;
}

}  // namespace

std::string topic_words(const rd_kafka_metadata_topic& topic) {
    if (topic.err != RD_KAFKA_RESP_ERR_NO_ERROR) return words_of(topic.err);
    int leaderless = 0;
    for (int i = 0; i < topic.partition_cnt; i++) {
        if (topic.partitions[i].leader < 0) leaderless++;
    }
    if (leaderless == 0) return {};
    return std::to_string(leaderless) + " of " + std::to_string(topic.partition_cnt) + " partitions have no leader";
}

Finding metadata_finding(rd_kafka_s* rk, const std::string& topic, int timeout_ms) {
    const Topic handle(rd_kafka_topic_new(rk, topic.c_str(), nullptr));
    if (!handle) return {};
    const struct rd_kafka_metadata* answer = nullptr;
    const rd_kafka_resp_err_t failed = rd_kafka_metadata(rk, 0, handle.get(), &answer, timeout_ms);
    const std::unique_ptr<const struct rd_kafka_metadata, ReleaseMetadata> metadata(answer);
    if (failed != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return {false, std::string("no broker tells of it: ") + rd_kafka_err2str(failed), 0};
    }
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const rd_kafka_metadata_topic& found = metadata->topics[i];
        if (topic != found.topic) continue;
        std::string words = topic_words(found);
        return {true, words.empty() ? thin_partition(found) : words, fewest_in_sync(found)};
    }
    return {true, {}, 0};
}

}  // namespace outbox::sink::kafka
