// The two regimes. A frame either owns C++ objects with destructors or calls PostgreSQL code that can
// ereport, never both: siglongjmp skips destructors. From C++ code PostgreSQL is reached through call();
// towards PostgreSQL every C entry point is a boundary() that turns exceptions into ereport.
// No postgres.h here: this is what the C++ side includes.
#pragma once

#include <exception>
#include <string>
#include <type_traits>

namespace outbox::pg {

// A PostgreSQL error as a C++ exception. After one was caught the transaction is aborted, always.
class Error : public std::exception {
public:
    int sqlstate = 0;  // MAKE_SQLSTATE's encoding
    std::string message, detail, hint;
    const char *what() const noexcept override { return message.c_str(); }
};

// Runs fn(arg), which may ereport(ERROR), and throws Error if it does. Not a template: the one PG_TRY of
// the tree is in there.
void protect(void (*fn)(void *), void *arg);

// pg::call([&] { return PostgreSQLFunction(x); }): what the lambda holds while an error can jump out of it
// must not need a destructor, and neither may its result.
template <class F>
auto call(F f)
{
    static_assert(std::is_trivially_destructible_v<F>, "captures must be trivially destructible");
    using Result = decltype(f());
    if constexpr (std::is_void_v<Result>) {
        protect([](void *p) { (*static_cast<F *>(p))(); }, &f);
    } else {
        static_assert(std::is_trivially_destructible_v<Result>, "the result must be trivially destructible");
        struct Frame {
            F *f;
            Result result;
        } frame{&f, {}};
        protect(
            [](void *p) {
                auto *fr = static_cast<Frame *>(p);
                fr->result = (*fr->f)();
            },
            &frame);
        return frame.result;
    }
}

// Raises the error as PostgreSQL's own. Does not return. Call it with no C++ object left in the frame.
struct Failure {
    int sqlstate;
    char message[512], detail[512], hint[512];
};
[[noreturn]] void raise(const Failure &failure);
void describe_current_exception(Failure &failure) noexcept;

// A C entry point's boundary: runs `f` as C++ code; exceptions leave as ereport(ERROR).
template <class F>
auto boundary(F f)
{
    using Result = decltype(f());
    Failure failure;
    if constexpr (std::is_void_v<Result>) {
        try {
            f();
            return;
        } catch (...) {
            describe_current_exception(failure);
        }
        raise(failure);
    } else {
        static_assert(std::is_trivially_destructible_v<Result>, "the result must be trivially destructible");
        try {
            return f();
        } catch (...) {
            describe_current_exception(failure);
        }
        raise(failure);
    }
}

}  // namespace outbox::pg
