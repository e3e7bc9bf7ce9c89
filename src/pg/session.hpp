// A background worker's session: connecting, transactions, the extension it works for. C++ regime.
#pragma once

#include <cstdint>

namespace outbox::pg {

using Oid = unsigned int;

// Connects the worker to the database as the bootstrap superuser, sets the session settings that a
// cluster's or role's defaults must not break, and unblocks signals. An error is FATAL: the worker ends.
void connect(Oid database);
void connect_nowhere();  // shared catalogs only (the launcher)

Oid my_database();
const char *my_database_name();  // lives until the process ends; the first call in a transaction

// One transaction. The destructor aborts what was not committed.
class Transaction {
public:
    Transaction();
    ~Transaction();
    Transaction(const Transaction &) = delete;
    Transaction &operator=(const Transaction &) = delete;
    void commit();

private:
    bool open_ = true;
};
void commit_lazily();        // the transaction that is open need not be on disk when its commit returns
void abandon_transaction();  // whatever is open. For before_exit: a process can be told to end in the middle of it

// Part of a Transaction that may fail alone: what is done in it is undone by the destructor unless it was committed, and the
// Transaction goes on.
class Subtransaction {
public:
    Subtransaction();
    ~Subtransaction();
    Subtransaction(const Subtransaction &) = delete;
    Subtransaction &operator=(const Subtransaction &) = delete;
    void commit();

private:
    void end(bool commit);
    bool open_ = true;
    void *context_, *owner_;  // of the part before
};

// A snapshot that the read-only statements run under while the object lives. Inside a Transaction.
class ReadView {
public:
    ReadView();
    ~ReadView();
    ReadView(const ReadView &) = delete;
    ReadView &operator=(const ReadView &) = delete;

private:
    bool pushed_ = true;
};

const char *snapshot_text();  // of the current ReadView, as pg_current_snapshot() has it; lives as long as the transaction
std::int64_t log_turn();      // of the ring of segments, as every writer sees it from now on

// Takes a share lock on the extension for the rest of the transaction without waiting. False: it is not
// there, or is being dropped or altered.
struct Extension {
    bool present = false;
    bool busy = false;  // somebody holds its lock
    bool another = false;  // not present, but one that was created after ours was dropped
    Oid oid = 0;
    char version[32] = "";
};
Extension lock_extension();
// From now on only this one counts as present. What this process knows (catalog caches, plans) may be of the one before when
// the next one can be seen already.
void work_for(const Extension &extension);

// One process of a database at a time does a chore: true when this one may, until its transaction ends; `wait`: until it may. An
// advisory lock out of reach of SQL's advisory lock functions, so that no role can hold it.
enum class Chore : int { segments = 1, scheduled = 2 };
bool only_one(Chore chore, bool wait = false);

// A table of ours, to be written to: at once or not at all.
bool lock_table_now(const char *name);

// True while the server is able to do what workers do (not in recovery).
bool recovery_in_progress();

// Makes sure that the commits of these transactions are on disk. `xids` are full ids.
void flush_commits(const std::uint64_t *xids, std::size_t count);
std::uint64_t next_xid();          // first full transaction id not yet given out
void make_commits_durable();       // everything committed before this call is on disk when it returns

// Statistics and pg_stat_activity (text shown as `query`; state idle when null).
void report_activity(const char *what);
void report_statistics();
void name_session(const char *name);  // application_name

// One line in the server log.
enum class Level { debug, info, warning };
void log(Level level, const char *message);

}  // namespace outbox::pg
