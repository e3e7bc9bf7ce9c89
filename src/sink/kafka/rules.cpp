#include "sink/kafka/rules.hpp"

#include <librdkafka/rdkafka.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace outbox::sink::kafka {

namespace {

constexpr int kAnswerMs = 5000;
constexpr std::size_t kBatchHeader = 61;

struct ReleaseResource {
    void operator()(rd_kafka_ConfigResource_t* resource) const noexcept { rd_kafka_ConfigResource_destroy(resource); }
};
struct ReleaseOptions {
    void operator()(rd_kafka_AdminOptions_t* options) const noexcept { rd_kafka_AdminOptions_destroy(options); }
};

// A number as the record format has it: zigzag, seven bits a byte.
std::size_t varint_size(std::int64_t n) {
    std::uint64_t bits = (static_cast<std::uint64_t>(n) << 1) ^ static_cast<std::uint64_t>(n >> 63);
    std::size_t size = 1;
    while (bits >= 0x80) {
        bits >>= 7;
        size++;
    }
    return size;
}

std::size_t field_size(core::Bytes bytes) {
    return core::is_null(bytes) ? varint_size(-1) : varint_size(static_cast<std::int64_t>(bytes.size())) + bytes.size();
}

}  // namespace

void ask_rules(rd_kafka_s* rk, rd_kafka_queue_s* queue, Rules& rules, const char* topic) {
    rules.asked = Rules::Clock::now();
    const std::unique_ptr<rd_kafka_ConfigResource_t, ReleaseResource> resource(
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic));
    const std::unique_ptr<rd_kafka_AdminOptions_t, ReleaseOptions> options(
        rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS));
    if (!resource || !options) return;
    char error[128];
    rd_kafka_AdminOptions_set_request_timeout(options.get(), kAnswerMs, error, sizeof error);
    rd_kafka_ConfigResource_t* one = resource.get();
    rd_kafka_DescribeConfigs(rk, &one, 1, options.get(), queue);
}

std::string answered_rules(rd_kafka_op_s* event, Rules& rules) {
    rules = {};
    const rd_kafka_DescribeConfigs_result_t* result = rd_kafka_event_DescribeConfigs_result(event);
    if (result == nullptr || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) return {};
    std::size_t resources = 0;
    const rd_kafka_ConfigResource_t** resource = rd_kafka_DescribeConfigs_result_resources(result, &resources);
    if (resources == 0) return {};
    std::size_t count = 0;
    const rd_kafka_ConfigEntry_t** entries = rd_kafka_ConfigResource_configs(resource[0], &count);
    for (std::size_t i = 0; i < count; i++) {
        const std::string_view name = rd_kafka_ConfigEntry_name(entries[i]);
        const char* value = rd_kafka_ConfigEntry_value(entries[i]);
        if (value == nullptr) continue;
        if (name == "max.message.bytes") rules.largest = std::strtoul(value, nullptr, 10);
        if (name == "cleanup.policy") rules.compacted = std::string_view(value).find("compact") != std::string_view::npos;
        if (name == "min.insync.replicas") rules.in_sync = std::atoi(value);
    }
    return rd_kafka_ConfigResource_name(resource[0]);
}

std::size_t batch_size(const core::Event& event, const core::Encoder& encoder) {
    std::size_t record = 3;  // attributes, and no delta of time or offset in the first record
    record += field_size(event.aggregate_id) + field_size(encoder.value());
    const auto headers = encoder.headers();
    record += varint_size(static_cast<std::int64_t>(headers.size()));
    for (const core::WireHeader& header : headers) {
        record += field_size(header.name) + (header.null ? varint_size(-1) : varint_size(static_cast<std::int64_t>(header.value.size())) + header.value.size());
    }
    return kBatchHeader + varint_size(static_cast<std::int64_t>(record)) + record;
}

}  // namespace outbox::sink::kafka
