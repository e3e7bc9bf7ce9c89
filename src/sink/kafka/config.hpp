// From a sink's options to librdkafka's configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/options.hpp"
#include "sink/kafka/handle.hpp"

namespace outbox::sink::kafka {

// Our defaults, what the guarantees ask for, and the sink's own properties in between: they may change the former and
// not the latter. Throws std::runtime_error, which names the property and never a value that may be a secret.
Conf make_conf(const core::SinkOptions& options);

// Values that no text of ours may repeat.
std::vector<std::string> secrets_of(const core::SinkOptions& options);

// The value of a property in force in `conf`; empty when there is none.
std::string property_of(const rd_kafka_conf_s* conf, const char* name);

// "kafka_1.example" for what a client.id may hold: brokers put it into metric names.
std::string client_id(const core::SinkOptions& options);

}  // namespace outbox::sink::kafka
