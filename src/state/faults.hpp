// Fault points for tests. In the normal build there are none: fault() is the constant false and its names vanish.
#pragma once

namespace outbox {

#ifdef OUTBOX_FAULTS
// True while the setting outbox.fault lists the name (comma-separated).
bool fault(const char *name);
#else
constexpr bool fault(const char *) { return false; }
#endif

}  // namespace outbox
