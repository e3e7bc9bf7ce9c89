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

// Not by SQL: no event trigger fires, ours or anybody's, and a worker has no portal that a command could run in.
void set_server_option(const std::string &server, bool had_one, const char *option, const std::string &value)
{
    const char *name = server.c_str();
    const char *text = value.c_str();
    call([=] {
        auto *statement = makeNode(AlterForeignServerStmt);
        statement->servername = pstrdup(name);
        statement->options = list_make1(makeDefElemExtended(nullptr, pstrdup(option), reinterpret_cast<Node *>(makeString(pstrdup(text))),
                                                            had_one ? DEFELEM_SET : DEFELEM_ADD, -1));
        AlterForeignServer(statement);
        CommandCounterIncrement();
    });
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
