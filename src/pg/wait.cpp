#include "pg/wait.hpp"

#include <unistd.h>

#include "pg/guard.hpp"
#include "pg/postgres.hpp"

namespace outbox::pg {

static uint32 event_of(Wait why) { return wait_event(static_cast<WaitName>(why)); }

bool wait(Wait why, int fd, long timeout_ms)
{
    return call([=] {
        // A termination that came while interrupts were held has set the latch, and that wait has reset it.
        CHECK_FOR_INTERRUPTS();
        int wake = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
        int events = fd >= 0 ? WaitLatchOrSocket(MyLatch, wake | WL_SOCKET_READABLE, fd, timeout_ms, event_of(why))
                             : WaitLatch(MyLatch, wake, timeout_ms, event_of(why));
        ResetLatch(MyLatch);
        // While interrupts are held CHECK_FOR_INTERRUPTS does nothing, but barriers must not wait for a broker:
        // DROP DATABASE of any database waits for every process to serve them.
        if (ProcSignalBarrierPending)
            ProcessProcSignalBarrier();
        CHECK_FOR_INTERRUPTS();
        return (events & WL_TIMEOUT) != 0;
    });
}

// HOLD_INTERRUPTS and RESUME_INTERRUPTS, written out: C++20 deprecates ++ on a volatile.
HoldInterrupts::HoldInterrupts() { InterruptHoldoffCount = InterruptHoldoffCount + 1; }

HoldInterrupts::~HoldInterrupts()
{
    // An ERROR resets the count (errfinish), so it may be zero already.
    if (InterruptHoldoffCount > 0)
        InterruptHoldoffCount = InterruptHoldoffCount - 1;
}

bool termination_requested() { return ProcDiePending; }

void serve_interrupts()
{
    call([] { CHECK_FOR_INTERRUPTS(); });
}

bool take_reload()
{
    if (!ConfigReloadPending)
        return false;
    ConfigReloadPending = false;
    call([] { ProcessConfigFile(PGC_SIGHUP); });
    return true;
}

void before_exit(void (*fn)())
{
    call([=] { before_shmem_exit([](int, Datum arg) { reinterpret_cast<void (*)()>(arg)(); }, reinterpret_cast<Datum>(fn)); });
}

void at_exit(void (*fn)())
{
    call([=] { on_proc_exit([](int, Datum arg) { reinterpret_cast<void (*)()>(arg)(); }, reinterpret_cast<Datum>(fn)); });
}

void leave_at_once() { _exit(1); }

}  // namespace outbox::pg
