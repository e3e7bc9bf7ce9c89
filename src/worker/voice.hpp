// What relays say in the server log: a line for each change of a sink's state, and one a minute for its troubles.
#pragma once

#include <string>

#include "pg/session.hpp"

namespace outbox::worker {

// One for each relay, and so for each process. The lanes of a sink share its minutes (shared::may_say): the first one that finds it
// down says so, and says that it is up again.
class Voice {
public:
    // A sink that comes and goes is said to be down once a minute at most, and up again if it was said to be down.
    void down(std::string line);
    void up(const std::string &line);

    // Within a minute of the last one it waits; what waits comes out when the minute is over, the first in full and how many others.
    void trouble(pg::Level level, std::string line);

    // What waits, if it may be said now; at the end of the process whatever its time is.
    void rest(bool at_end = false);

private:
    bool said_down_ = false;
    std::string down_, trouble_;  // what waits
    pg::Level level_ = pg::Level::info;
    unsigned others_ = 0;
};

Voice &voice();

}  // namespace outbox::worker
