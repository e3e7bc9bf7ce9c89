// Topic templates: the first line is the template, then aggregate_type and event_type. What expands is a legal name, and
// what does not is explained.
#include <cstdint>
#include <cstdlib>

#include "core/topic.hpp"

using namespace outbox::core;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

std::string_view take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    TopicTemplate topics;
    std::string error, hint;
    const std::string_view text = take_line(rest);
    const bool parsed = topics.parse(text, error, hint);
    demand(parsed == error.empty());

    Event event;
    event.aggregate_type = take_line(rest);
    event.event_type = take_line(rest);
    if (event.aggregate_type.empty()) event.aggregate_type = {};
    Buffer out;
    std::string_view topic;
    if (topics.expand(event, out, topic)) {
        demand(is_legal_topic(topic));
    } else {
        demand(!topics.is_fixed());
        demand(topics.explain(event).find('\n') == std::string::npos);
    }
    event.topic = text;
    demand(topics.expand(event, out, topic) == is_legal_topic(text) || text.data() == nullptr);
    return 0;
}
