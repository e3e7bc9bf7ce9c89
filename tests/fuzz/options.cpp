// Options: the first line is the name, the rest the value. What is refused changes nothing and is told in one line; what is
// taken is taken again.
#include <cstdint>
#include <cstdlib>

#include "core/options.hpp"
#include "core/uuid.hpp"

using namespace outbox::core;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::size_t end = text.find('\n');
    const std::string_view name = text.substr(0, end);
    const std::string_view value = end == std::string_view::npos ? std::string_view("") : text.substr(end + 1);

    const std::string canonical = canonical_property(name);
    demand(canonical_property(canonical) == canonical);

    SinkOptions options;
    const OptionError error = set_option(options, name, value);
    demand(error.option.empty() == error.message.empty());
    demand(error.message.find('\n') == std::string::npos);
    if (!is_own_option(name)) demand(!error.option.empty());
    if (!error.option.empty()) {
        demand(options.topic.empty() && options.events == "*" && options.source.empty() && options.lanes == 1);
    } else {
        demand(set_option(options, name, value).option.empty());
    }
    demand(options.lanes >= 1 && options.lanes <= kMaxLanes);
    demand(options.batch_size >= 1 && options.batch_size <= kMaxBatchEvents);
    demand(options.delivery_timeout_ms > 0 && options.stall_timeout_ms > 0);

    EventId id{};
    if (parse_uuid(value, id)) {
        char again[kUuidLength];
        write_uuid(again, id);
        EventId same{};
        demand(parse_uuid({again, kUuidLength}, same) && same == id);
    }
    return 0;
}
