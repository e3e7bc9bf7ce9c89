// SQL from C++: statements that are planned once per process, and rows without copies. C++ regime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string_view>
#include <type_traits>

namespace outbox::pg {

struct Param {
    enum class Type { int4, int8, xid8, xid8_array, int8_array, text, uuid, boolean, timestamptz } type;
    bool null = false;
    std::int64_t number = 0;
    const void *data = nullptr;
    std::size_t size = 0;  // bytes; for arrays: elements

    static Param int4(std::int32_t v) { return {Type::int4, false, v}; }
    static Param int8(std::int64_t v) { return {Type::int8, false, v}; }
    static Param xid8(std::uint64_t v) { return {Type::xid8, false, static_cast<std::int64_t>(v)}; }
    static Param boolean(bool v) { return {Type::boolean, false, v}; }
    // PostgreSQL's timestamptz: microseconds since 2000-01-01
    static Param timestamptz(std::int64_t v) { return {Type::timestamptz, false, v}; }
    static Param text(std::string_view v) { return {Type::text, v.data() == nullptr, 0, v.data(), v.size()}; }
    static Param uuid(const void *sixteen) { return {Type::uuid, sixteen == nullptr, 0, sixteen, 16}; }
    static Param xid8s(const std::uint64_t *v, std::size_t n) { return {Type::xid8_array, false, 0, v, n}; }
    static Param int8s(const std::int64_t *v, std::size_t n) { return {Type::int8_array, false, 0, v, n}; }
    static Param none(Type type) { return {type, true}; }
};

// One column of one row. Numbers (int2, int4, int8, xid8, bool, timestamptz) are in `number`; everything else
// (text, json, bytea, uuid's 16 bytes) in `bytes`, UTF-8 whatever the database's encoding. NULL: data() is null.
// Bytes live until the transaction ends.
struct Cell {
    std::int64_t number;
    std::string_view bytes;
    bool null;
};

class Rows {
public:
    std::size_t size() const { return count_; }
    // Decodes row i into `cells` (as many as the statement has columns).
    void get(std::size_t i, Cell *cells) const;
    std::int64_t number(std::size_t i = 0, int column = 0) const;

    // Calls row(cells) for each; `row` is C++ code that must not throw. If it returns something, false ends it: the values of the
    // rows behind are not even read.
    template <class F>
    void each(F &&row) const
    {
        walk([](void *p, const Cell *cells) {
                 if constexpr (std::is_void_v<decltype(row(cells))>) {
                     (*static_cast<F *>(p))(cells);
                     return true;
                 } else {
                     return (*static_cast<F *>(p))(cells);
                 }
             },
             &row);
    }

    void *table_ = nullptr;  // SPITupleTable
    std::size_t count_ = 0;

private:
    void walk(bool (*row)(void *, const Cell *), void *arg) const;
};

// Who takes rows as they come; see Statement::each().
struct RowTaker {
    bool (*row)(void *, const Cell *) noexcept;
    void *arg;
};

// A statement, planned at its first run in this process and again only when PostgreSQL says so.
// Static storage; constexpr-constructible: no global constructor runs.
class Statement {
public:
    constexpr explicit Statement(const char *sql) : sql_(sql) {}
    void reset(const char *sql);  // another text, which must live as long; the old plan is freed
    Rows run(std::initializer_list<Param> params = {});                   // may write
    Rows read(std::initializer_list<Param> params = {}, long limit = 0);  // under the ReadView, if there is one

    // Reads without making rows of them: row(cells) is called with the values where they lie, while the statement runs. Bytes live
    // until it returns, and false ends the statement. An exception ends it too, and leaves each(). Returns how many rows were shown.
    template <class F>
    std::size_t each(std::initializer_list<Param> params, F &&row)
    {
        return stream(&plan_, sql_, params, row);
    }

    template <class F>
    static std::size_t each_once(const char *sql, std::initializer_list<Param> params, F &&row)
    {
        return stream(nullptr, sql, params, row);
    }

private:
    Rows execute(std::initializer_list<Param> params, bool read_only, long limit);
    static std::size_t show(void **plan, const char *sql, std::initializer_list<Param> params, const RowTaker &to);

    template <class F>
    static std::size_t stream(void **plan, const char *sql, std::initializer_list<Param> params, F &row)
    {
        struct Caught {
            F &row;
            std::exception_ptr exception;
        } caught{row, {}};
        std::size_t shown = show(plan, sql, params,
                                 {[](void *p, const Cell *cells) noexcept {
                                      auto *c = static_cast<Caught *>(p);
                                      try {
                                          return c->row(cells);
                                      } catch (...) {
                                          c->exception = std::current_exception();
                                          return false;
                                      }
                                  },
                                  &caught});
        if (caught.exception)
            std::rethrow_exception(caught.exception);
        return shown;
    }

    const char *sql_;
    void *plan_ = nullptr;
};

// A statement that is run seldom, or whose text is made at run time.
Rows run_once(const char *sql, std::initializer_list<Param> params = {});
Rows read_once(const char *sql, std::initializer_list<Param> params = {});  // under the ReadView

}  // namespace outbox::pg
