#include "worker/voice.hpp"

#include "state/shared.hpp"

namespace outbox::worker {

using shared::Line;

Voice &voice()
{
    static auto *the_voice = new Voice;  // never destroyed, as the relay
    return *the_voice;
}

void Voice::down(std::string line)
{
    said_down_ = shared::may_say(Line::change);
    if (said_down_)
        pg::log(pg::Level::warning, line.c_str());
    else
        down_ = std::move(line);
}

void Voice::up(const std::string &line)
{
    if (said_down_)
        pg::log(pg::Level::info, line.c_str());
    said_down_ = false;
    down_.clear();
}

void Voice::trouble(pg::Level level, std::string line)
{
    if (!trouble_.empty())
        others_++;
    else if (shared::may_say(Line::trouble))
        pg::log(level, line.c_str());
    else {
        trouble_ = std::move(line);
        level_ = level;
    }
}

void Voice::rest(bool at_end)
{
    if (!down_.empty() && !at_end && shared::may_say(Line::change)) {
        pg::log(pg::Level::warning, down_.c_str());
        down_.clear();
        said_down_ = true;
    }
    if (trouble_.empty() || (!at_end && !shared::may_say(Line::trouble)))
        return;
    if (others_ > 0)
        trouble_ += " (and " + std::to_string(others_) + " more lines within a minute)";
    pg::log(level_, trouble_.c_str());
    trouble_.clear();
    others_ = 0;
}

}  // namespace outbox::worker
