// The validators of sinks' options. PostgreSQL regime at the edge, C++ inside the boundaries.
#include <string>

#include "core/options.hpp"
#include "pg/guard.hpp"
#include "pg/postgres.hpp"
#include "sink/sink.hpp"

extern "C" {
#include "access/reloptions.h"
#include "commands/defrem.h"
}

using namespace outbox;

namespace {

enum class Where { server, mapping };

[[noreturn]] void fail(int sqlstate, std::string message, std::string hint)
{
    pg::Error error;
    error.sqlstate = sqlstate;
    error.message = std::move(message);
    error.hint = std::move(hint);
    throw error;
}

template <class Names>
std::string list_of(const Names &options)
{
    std::string names;
    for (std::string_view option : options)
        names.append(names.empty() ? "" : ", ").append(option);
    return names;
}

std::string known_options()
{
    return "Options of outbox are " + list_of(core::own_options()) +
           "; all others are librdkafka's, such as bootstrap_servers, security_protocol and sasl_username.";
}

void refuse(const core::OptionError &problem)
{
    if (!problem.message.empty())
        fail(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE, problem.message, problem.hint);
}

// One option of a Kafka server or user mapping. Secret values appear in no message.
void validate_kafka_option(Where where, const char *option, const char *value, bool may_program, bool may_files)
{
    std::string name = option;
    if (where == Where::server && core::is_own_option(name)) {
        core::SinkOptions scratch;
        return refuse(core::set_option(scratch, name, value));
    }
    if (where == Where::mapping && core::is_own_option(name))
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" belongs to the server, not to a user mapping", "Use ALTER SERVER.");
    sink::PropertyVerdict verdict = sink::check_property(name, value, may_program, may_files);
    switch (verdict.what) {
    case sink::PropertyClass::unknown:
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" is neither an option of outbox nor a producer property of librdkafka",
             verdict.hint.empty() ? known_options() : verdict.hint);
    case sink::PropertyClass::ours:
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" is set by outbox itself", verdict.hint);
    case sink::PropertyClass::restricted_nobody:
        fail(ERRCODE_INSUFFICIENT_PRIVILEGE, "option \"" + name + "\" cannot be set", verdict.hint);
    case sink::PropertyClass::restricted_program:
        if (!may_program)
            fail(ERRCODE_INSUFFICIENT_PRIVILEGE, "option \"" + name + "\" runs a program on the server", "Only members of pg_execute_server_program may set it.");
        break;
    case sink::PropertyClass::restricted_files:
        if (!may_files)
            fail(ERRCODE_INSUFFICIENT_PRIVILEGE, "option \"" + name + "\" names a file or an address that the server would read", "Only members of pg_read_server_files may set it.");
        break;
    case sink::PropertyClass::free: break;
    }
    if (verdict.secret && where == Where::server)
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" is a secret and belongs in the user mapping",
             "CREATE USER MAPPING FOR CURRENT_USER SERVER ... OPTIONS (" + name + " '...').");
    if (!verdict.error.empty())
        fail(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE, "option \"" + name + "\": " + verdict.error, verdict.hint);
}

// Both spellings of one property are an error.
void refuse_twice(const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (core::canonical_property(names[i]) == core::canonical_property(names[k]))
                fail(ERRCODE_FDW_INVALID_OPTION_NAME,
                     std::string("options \"") + names[k] + "\" and \"" + names[i] + "\" are the same property", "");
}

void validate_http_option(Where where, core::SinkOptions &scratch, const std::string &name, const char *value)
{
    bool own = core::is_own_option(name, core::Kind::http), secret = core::is_http_secret(name);
    if (!own)
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "outbox_http has no option \"" + name + "\"",
             where == Where::server ? "Options of a server are " + list_of(core::own_options(core::Kind::http)) + "."
                                    : "Options of a user mapping are " + list_of(core::http_mapping_options()) + ".");
    if (secret && where == Where::server)
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" is a secret and belongs in the user mapping",
             "CREATE USER MAPPING FOR CURRENT_USER SERVER ... OPTIONS (" + name + " '...').");
    if (!secret && where == Where::mapping)
        fail(ERRCODE_FDW_INVALID_OPTION_NAME, "option \"" + name + "\" belongs to the server, not to a user mapping", "Use ALTER SERVER.");
    refuse(core::set_option(scratch, name, value));
}

constexpr int kMaxOptions = 200;

// The options of a CREATE or ALTER, as they would be after it.
struct Given {
    Where where;
    int count = 0;
    const char *names[kMaxOptions], *values[kMaxOptions];
};

// False: not a server or a user mapping, which have no options.
bool read_options(FunctionCallInfo fcinfo, const char *wrapper, Given *given)
{
    List *list = untransformRelOptions(PG_GETARG_DATUM(0));
    ::Oid catalog = PG_GETARG_OID(1);
    if (catalog != ForeignServerRelationId && catalog != UserMappingRelationId) {
        if (list != NIL)
            ereport(ERROR, errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("%s has no options here", wrapper),
                    errhint("Options go to CREATE SERVER and CREATE USER MAPPING."));
        return false;
    }
    given->where = catalog == ForeignServerRelationId ? Where::server : Where::mapping;
    ListCell *cell;
    foreach (cell, list) {
        if (given->count == kMaxOptions)
            ereport(ERROR, errmsg("too many options"));
        auto *option = static_cast<DefElem *>(lfirst(cell));
        given->names[given->count] = option->defname;
        given->values[given->count++] = defGetString(option);
    }
    return true;
}

}  // namespace

extern "C" {

PG_FUNCTION_INFO_V1(outbox_kafka_validator);
PGDLLEXPORT Datum outbox_kafka_validator(PG_FUNCTION_ARGS)
{
    Given given;
    if (!read_options(fcinfo, "outbox_kafka", &given))
        PG_RETURN_VOID();
    bool super = superuser();
    bool may_program = super || has_privs_of_role(GetUserId(), ROLE_PG_EXECUTE_SERVER_PROGRAM);
    bool may_files = super || has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES);
    pg::boundary([&] {
        refuse_twice(given.names, given.count);
        for (int i = 0; i < given.count; i++)
            validate_kafka_option(given.where, given.names[i], given.values[i], may_program, may_files);
    });
    PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(outbox_http_validator);
PGDLLEXPORT Datum outbox_http_validator(PG_FUNCTION_ARGS)
{
    Given given;
    if (!read_options(fcinfo, "outbox_http", &given))
        PG_RETURN_VOID();
    pg::boundary([&] {
        core::SinkOptions scratch(core::Kind::http);
        for (int i = 0; i < given.count; i++)
            validate_http_option(given.where, scratch, given.names[i], given.values[i]);
        refuse(given.where == Where::server ? core::check_server(scratch) : core::check_http_mapping(scratch.http));
    });
    PG_RETURN_VOID();
}

}  // extern "C"
