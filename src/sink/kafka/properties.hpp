// The table of librdkafka's properties: who may set them, and which are secrets.
#pragma once

#include <string>
#include <string_view>

namespace outbox::sink::kafka {

// A property of ours among librdkafka's: sasl.password, read from a file.
inline constexpr std::string_view kPasswordFile = "sasl.password.file";

// By pattern, so that a name of a later librdkafka counts too.
bool is_secret(std::string_view canonical_name);

// Why a property is never handed to librdkafka, whoever set it; empty when it may be.
std::string why_never(std::string_view canonical_name, std::string_view value);

}  // namespace outbox::sink::kafka
