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

// ALTER SERVER server OPTIONS (SET option 'value'), or ADD if it had none, without any event trigger taking notice.
void set_server_option(const std::string &server, bool had_one, const char *option, const std::string &value);

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
