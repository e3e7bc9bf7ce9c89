// librdkafka's error codes in words.
#pragma once

#include <cstdint>
#include <string>

namespace outbox::sink::kafka {

// librdkafka's own text, or a better one where its own leads nowhere.
std::string words_of(std::int32_t code);

// The code says that it took too long or was given up, not why.
bool tells_nothing(std::int32_t code);

}  // namespace outbox::sink::kafka
