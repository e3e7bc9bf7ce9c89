// The table of librdkafka's properties: who may set them, and which are secrets. It is read
// before librdkafka sees a name or a value: some properties run code the moment they are set.
#pragma once

#include <string>
#include <string_view>

namespace outbox::sink::kafka {

// A property of ours among librdkafka's: sasl.password, read from a file.
inline constexpr std::string_view kPasswordFile = "sasl.password.file";

// The one name of a property: dots, and the alias that we keep where librdkafka has two.
std::string property_name(std::string_view option);

// By pattern, so that a name of a later librdkafka counts too. Any spelling.
bool is_secret(std::string_view property);

// Why a property with this value is never handed to librdkafka, whoever set it; empty when it may be.
std::string why_never(std::string_view property, std::string_view value);

}  // namespace outbox::sink::kafka
