#include "pg/guard.hpp"

#include <cstdio>
#include <new>

#include "pg/postgres.hpp"
#include "state/faults.hpp"

namespace outbox::pg {

static ErrorData *caught_error(MemoryContext context)
{
    MemoryContextSwitchTo(context);
    ErrorData *data = CopyErrorData();
    FlushErrorState();
    return data;
}

// The one PG_TRY of the tree. noinline: in a caller's frame the compiler would have to keep its locals
// out of registers.
__attribute__((noinline)) static ErrorData *run(void (*fn)(void *), void *arg)
{
    MemoryContext context = CurrentMemoryContext;
    ErrorData *volatile error = nullptr;
    PG_TRY();
    {
        if (fault_at("call"))
            ereport(ERROR, errmsg("a fault of the test"));
        fn(arg);
    }
    PG_CATCH();
    {
        error = caught_error(context);
    }
    PG_END_TRY();
    return error;
}

void protect(void (*fn)(void *), void *arg)
{
    ErrorData *data = run(fn, arg);
    if (data == nullptr)
        return;
    Error error;
    error.sqlstate = data->sqlerrcode;
    error.message = data->message != nullptr ? data->message : "unknown error";
    error.detail = data->detail != nullptr ? data->detail : "";
    error.hint = data->hint != nullptr ? data->hint : "";
    FreeErrorData(data);
    throw error;
}

static void copy(char (&to)[512], const char *from) { snprintf(to, sizeof to, "%s", from); }

void describe_current_exception(Failure &failure) noexcept
{
    failure.detail[0] = failure.hint[0] = '\0';
    failure.sqlstate = ERRCODE_INTERNAL_ERROR;
    try {
        throw;
    } catch (const Error &e) {
        failure.sqlstate = e.sqlstate;
        copy(failure.message, e.message.c_str());
        copy(failure.detail, e.detail.c_str());
        copy(failure.hint, e.hint.c_str());
    } catch (const std::bad_alloc &) {
        failure.sqlstate = ERRCODE_OUT_OF_MEMORY;
        copy(failure.message, "out of memory");
    } catch (const std::exception &e) {
        copy(failure.message, e.what());
    } catch (...) {
        copy(failure.message, "unexpected C++ exception");
    }
}

void raise(const Failure &failure)
{
    ereport(ERROR, errcode(failure.sqlstate), errmsg("%s", failure.message),
            failure.detail[0] != '\0' ? errdetail("%s", failure.detail) : 0,
            failure.hint[0] != '\0' ? errhint("%s", failure.hint) : 0);
    pg_unreachable();
}

}  // namespace outbox::pg
