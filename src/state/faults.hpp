// Fault points for tests. In the normal build there are none: these are constants and their names vanish.
#pragma once

namespace outbox {

#ifdef OUTBOX_FAULTS
// True while the setting outbox.fault lists the name (comma-separated).
bool fault(const char *name);

// True once: the n-th time that this thread asks, where outbox.fault lists "name:n". A changed setting counts from 1 again.
// Always false in a thread that did not call count_faults_here(). Every allocation of ours asks for "new".
bool fault_at(const char *name);
void count_faults_here();
#else
constexpr bool fault(const char *) { return false; }
constexpr bool fault_at(const char *) { return false; }
constexpr void count_faults_here() {}
#endif

}  // namespace outbox
