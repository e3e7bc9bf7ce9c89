#include "sink/kafka/destinations.hpp"

#include <librdkafka/rdkafka.h>

#include <utility>

namespace outbox::sink::kafka {

Destination* Destinations::of(rd_kafka_s* rk, std::string_view topic) {
    if (last_ != nullptr && topic == last_topic_) return last_;
    if (const auto known = map_.find(topic); known != map_.end()) {
        last_topic_ = known->first;
        return last_ = &known->second;
    }
    const auto made = map_.try_emplace(std::string(topic)).first;
    // The conf carries the sink's own settings for topics; the opaque leads back from a report.
    rd_kafka_topic_conf_t* conf = rd_kafka_default_topic_conf_dup(rk);
    rd_kafka_topic_conf_set_opaque(conf, &made->second);
    made->second.handle.reset(rd_kafka_topic_new(rk, made->first.c_str(), conf));
    if (made->second.handle) {
        unproven_++;
        return &made->second;
    }
    map_.erase(made);
    return nullptr;
}

Destination* Destinations::known(std::string_view topic) {
    const auto known = map_.find(topic);
    return known == map_.end() ? nullptr : &known->second;
}

Destination* Destinations::of(const rd_kafka_topic_s* topic) {
    if (topic == nullptr) return nullptr;
    if (void* known = rd_kafka_topic_opaque(topic)) return static_cast<Destination*>(known);
    // An inquiry about the topic came before its first event, and made the topic without the opaque.
    return known(rd_kafka_topic_name(topic));
}

void Destinations::block(Destination& destination, std::int32_t code) {
    if (destination.proven) unproven_++;
    destination.proven = false;
    destination.blocked = code;
    any_blocked_ = true;
}

void Destinations::unblock() {
    if (!any_blocked_) return;
    for (auto& [name, destination] : map_) destination.blocked = 0;
    any_blocked_ = false;
}

void Destinations::clear() {
    map_.clear();
    last_ = nullptr;
    unproven_ = 0;
}

}  // namespace outbox::sink::kafka
