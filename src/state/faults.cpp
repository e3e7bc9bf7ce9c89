#include "state/faults.hpp"

#ifdef OUTBOX_FAULTS

#include <cstdlib>
#include <cstring>
#include <new>

#include "state/settings.hpp"

namespace outbox {

// What follows the name where the setting lists it, else nullptr.
static const char *listed(const char *name)
{
    if (settings::fault == nullptr)
        return nullptr;
    size_t length = strlen(name);
    for (const char *p = strstr(settings::fault, name); p != nullptr; p = strstr(p + 1, name))
        if ((p == settings::fault || p[-1] == ',') && strchr(",:", p[length]) != nullptr)
            return p + length;
    return nullptr;
}

bool fault(const char *name) { return listed(name) != nullptr; }

static thread_local bool counts;

void count_faults_here() { counts = true; }

bool fault_at(const char *name)
{
    static char counted[64];
    static long times;
    const char *where = counts ? listed(name) : nullptr;
    if (where == nullptr || *where != ':')
        return false;
    if (strncmp(counted, settings::fault, sizeof counted - 1) != 0) {
        strncpy(counted, settings::fault, sizeof counted - 1);
        times = 0;
    }
    return ++times == atol(where + 1);
}

}  // namespace outbox

void *operator new(size_t size)
{
    void *p = outbox::fault_at("new") ? nullptr : malloc(size > 0 ? size : 1);
    if (p == nullptr)
        throw std::bad_alloc();
    return p;
}
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, size_t) noexcept { free(p); }

#endif
