// Which installation a sink belongs to: the option `home` of its server, <system identifier>/<database oid>/<instance>.
#pragma once

#include <string>
#include <string_view>

namespace outbox::core {

struct Home {
    std::string_view system, database, instance;  // views into the text that was parsed
};

inline Home parse_home(std::string_view text)
{
    Home home;
    auto first = text.find('/');
    home.system = text.substr(0, first);
    if (first == std::string_view::npos)
        return home;
    std::string_view rest = text.substr(first + 1);
    auto second = rest.find('/');
    home.database = rest.substr(0, second);
    if (second != std::string_view::npos)
        home.instance = rest.substr(second + 1);
    return home;
}

// Only the cluster is another one: so it is after pg_upgrade, which keeps the databases' oids, and in many a restored copy.
inline bool another_cluster_only(std::string_view home, std::string_view here)
{
    Home theirs = parse_home(home), ours = parse_home(here);
    return theirs.system != ours.system && theirs.database == ours.database && theirs.instance == ours.instance;
}

// Empty: the sink is at home here. Otherwise why it is not, for outbox.lag and outbox.health.
inline std::string foreign_home(std::string_view home, std::string_view here)
{
    if (home == here)
        return {};
    Home theirs = parse_home(home), ours = parse_home(here);
    if (theirs.system != ours.system)
        return "published by another cluster: this one is a restored copy";
    if (theirs.database != ours.database)
        return "published by another database of this cluster: this one is a copy of it";
    return "published under outbox.instance \"" + std::string(theirs.instance) + "\", and this is \"" +
           std::string(ours.instance) + "\"";
}

}  // namespace outbox::core
