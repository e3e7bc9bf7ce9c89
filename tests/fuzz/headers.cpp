// Headers: what is read can be written and read again, and what the checks let through the encoder can send.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/checks.hpp"
#include "core/json.hpp"
#include "core/utf8.hpp"
#include "core/wire.hpp"

using namespace outbox::core;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

bool has_control(std::string_view text) {
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
        if (is_control(read_utf8(at, end))) return true;
    }
    return false;
}

void check_round_trip(std::span<const JsonMember> members) {
    Buffer text, decoded;
    std::vector<JsonMember> again;
    text.append('{');
    for (const JsonMember& member : members) {
        if (text.size() > 1) text.append(',');
        append_json_string(text, member.name);
        text.append(':');
        if (member.null) {
            text.append("null");
        } else {
            append_json_string(text, member.value);
        }
    }
    text.append('}');
    demand(parse_flat_object(text.view(), again, decoded));
    demand(again.size() == members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        demand(again[i].name == members[i].name && again[i].null == members[i].null &&
               again[i].value == members[i].value);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<JsonMember> members;
    Buffer decoded;
    const bool parsed = parse_flat_object(text, members, decoded);
    if (parsed) check_round_trip(members);

    Event event;
    event.event_type = "x";
    event.headers = size == 0 ? std::string_view("") : text;
    if (check_event(event, size + 1)) return 0;
    demand(parsed);
    Encoder encoder({Format::debezium, ""});
    demand(encoder.encode(event));
    demand(encoder.headers().size() == members.size() + 1);
    for (const WireHeader& header : encoder.headers().subspan(1)) {
        demand(!header.name.empty() && !is_reserved_header(header.name));
        demand(!has_control(header.name) && !has_control(header.value));
    }
    return 0;
}
