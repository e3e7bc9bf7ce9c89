// The little JSON that is needed: writing strings, and reading a flat object of strings (an event's headers). Payloads
// are never parsed: they travel as the bytes that they are.
#pragma once

#include <string_view>
#include <vector>

#include "core/buffer.hpp"

namespace outbox::core {

// Appends `text` (UTF-8) as a JSON string, quotes included. Everything but `"`, `\` and C0 is left as it is.
void append_json_string(Buffer& out, std::string_view text);

// Reads {"name": "value", "name": null, …} member by member, without memory of its own.
class FlatObjectReader {
public:
    struct Member {
        std::string_view name;   // between the quotes, escapes not yet decoded
        std::string_view value;  // likewise; empty when `null`
        bool null = false;
        bool name_escaped = false;
        bool value_escaped = false;
    };
    enum class Step {
        member,
        end,  // the object and nothing behind it
        not_an_object,
        not_a_string,  // a value that is neither a string nor null; member.name is its name
        malformed,     // not JSON, or a string with U+0000 or half a surrogate pair
    };

    // The text must outlive the reader and the members it hands out.
    explicit FlatObjectReader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

    // After anything but `member` it keeps returning the same.
    Step next(Member& member);

private:
    void skip_space();
    bool take(char expected);
    bool read_string(std::string_view& raw, bool& escaped);
    Step stop(Step why) {
        stopped_ = true;
        return why_ = why;
    }

    const char* at_;
    const char* end_;
    bool started_ = false;
    bool stopped_ = false;
    Step why_ = Step::end;
};

// Decodes what stands between the quotes of a JSON string that FlatObjectReader handed out, appending to `out`: never
// more bytes than `raw` has. Returns the decoded text, in `out`.
std::string_view decode_json_string(std::string_view raw, Buffer& out);

// One decoded member of a flat object.
struct JsonMember {
    std::string_view name;
    std::string_view value;  // "" is not null
    bool null = false;
};

// Reads all of a flat object, appending to `members`; false for anything else. Replaces the content of `decoded`; the
// members point into `text` and `decoded`.
bool parse_flat_object(std::string_view text, std::vector<JsonMember>& members, Buffer& decoded);

}  // namespace outbox::core
