#include "pg/catalog.hpp"

#include <cstdio>
#include <exception>

#include "pg/guard.hpp"
#include "pg/postgres.hpp"
#include "pg/session.hpp"
#include "pg/spi.hpp"
#include "state/settings.hpp"

namespace outbox::pg {

std::string installation()
{
    char text[128];
    snprintf(text, sizeof text, UINT64_FORMAT "/%u/", GetSystemIdentifier(), MyDatabaseId);
    return std::string(text) + (settings::instance != nullptr ? settings::instance : "");
}

int sqlstate(const char *s) { return MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]); }

static void say(int level, const std::string &message, const std::string &hint)
{
    const char *m = message.c_str();
    const char *h = hint.c_str();
    call([=] { ereport(level, errmsg("%s", m), *h != '\0' ? errhint("%s", h) : 0); });
}

void notice(const std::string &message, const std::string &hint) { say(NOTICE, message, hint); }
void warning(const std::string &message, const std::string &hint) { say(WARNING, message, hint); }

static bool altering;
bool altering_server() { return altering; }

void alter_server_option(const std::string &server, const char *action, const char *option, const std::string &value)
{
    const char *name = server.c_str();
    const char *text = value.c_str();
    altering = true;
    try {
        call([=] {
            StringInfoData sql;
            initStringInfo(&sql);
            appendStringInfo(&sql, "ALTER SERVER %s OPTIONS (%s %s %s)", quote_identifier(name), action, option, quote_literal_cstr(text));
            if (SPI_execute(sql.data, false, 0) != SPI_OK_UTILITY)
                elog(ERROR, "\"%s\" failed", sql.data);
        });
    } catch (...) {
        altering = false;
        throw;
    }
    altering = false;
}

Spi::Spi()
{
    call([] {
        if (SPI_connect() != SPI_OK_CONNECT)
            elog(ERROR, "SPI_connect failed");
    });
}

Spi::~Spi()
{
    // Without a guard: it gives memory back and raises no error, and out of a destructor none could be thrown.
    if (std::uncaught_exceptions() == 0)
        SPI_finish();
}

}  // namespace outbox::pg
