// Background workers. C++ regime, but for register_at_start.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outbox::pg {

using Oid = unsigned int;

// From _PG_init: a worker that the postmaster starts after recovery and restarts after `restart_s`.
void register_at_start(const char *function, const char *name, int restart_s);

// A worker started from another one. Opaque: PostgreSQL's handle.
struct WorkerHandle;
enum class Started { yes, no_slot };
// `argument` is what the function gets. Never restarted by the postmaster. The caller's latch is set when it starts or ends.
Started start_worker(const char *function, const char *name, const char *type, std::uint64_t argument, WorkerHandle **handle);
bool worker_ended(WorkerHandle *handle);
void forget_worker(WorkerHandle *handle);

// The databases that allow connections, the `limit` oldest of them; returns how many there are. Inside a Transaction of a process without
// database.
std::size_t list_databases(Oid *to, std::size_t limit);

// A worker's end: exit code 0 unregisters it.
[[noreturn]] void end_worker(int code);

// Dynamic shared memory that the starter of this worker made; nullptr: it is gone. Stays until the process ends.
void *attach_segment(std::uint32_t handle);

// The value that PostgreSQL gave to the worker's main function.
std::uint64_t worker_argument(std::uintptr_t datum);

std::int64_t now();  // timestamptz

}  // namespace outbox::pg
