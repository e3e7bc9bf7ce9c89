// What DDL code and the workers need of PostgreSQL beyond SQL. C++ regime.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::pg {

// This installation: <system identifier>/<database oid>/<outbox.instance>.
std::string installation();

int sqlstate(const char *five_characters);
void notice(const std::string &message, const std::string &hint);
void warning(const std::string &message, const std::string &hint);

// ALTER SERVER name OPTIONS (ADD|SET option 'value'), without our own event trigger taking notice.
void alter_server_option(const std::string &server, const char *action, const char *option, const std::string &value);
bool altering_server();  // inside of that

// SPI for code that runs in a client's backend. Not needed inside a Transaction. If an exception passes through, the
// error that it becomes cleans up.
class Spi {
public:
    Spi();
    ~Spi();
    Spi(const Spi &) = delete;
    Spi &operator=(const Spi &) = delete;
};

}  // namespace outbox::pg
