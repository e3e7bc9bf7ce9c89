// Waiting in a worker: always on the latch, never past the postmaster's death. C++ regime.
#pragma once

namespace outbox::pg {

enum class Wait { idle, delivery, backing_off, launcher };

// Waits until the latch is set, `fd` (if not -1) is readable or the time is over, and resets the latch.
// Serves interrupts: a termination ends the process here (FATAL), unless they are held. True when the time
// was over.
bool wait(Wait why, int fd, long timeout_ms);

// From the first produce to the record a relay holds termination off; wait() still serves barriers.
class HoldInterrupts {
public:
    HoldInterrupts();
    ~HoldInterrupts();
    HoldInterrupts(const HoldInterrupts &) = delete;
    HoldInterrupts &operator=(const HoldInterrupts &) = delete;
};

bool termination_requested();  // this process was told to end
void serve_interrupts();       // ends the process if so; otherwise cancels, barriers
bool take_reload();            // SIGHUP came: the configuration has been read again

// Work to do when the process ends, however it ends. Before the first one: shared memory is still there;
// at_exit: it is not any more, nothing of PostgreSQL may be touched.
void before_exit(void (*fn)());
void at_exit(void (*fn)());
[[noreturn]] void leave_at_once();  // _exit: for an at_exit handler when foreign threads still run

}  // namespace outbox::pg
