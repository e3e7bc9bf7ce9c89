#include "state/faults.hpp"

#ifdef OUTBOX_FAULTS

#include <cstring>

#include "state/settings.hpp"

namespace outbox {

bool fault(const char *name)
{
    if (settings::fault == nullptr)
        return false;
    size_t length = strlen(name);
    for (const char *p = strstr(settings::fault, name); p != nullptr; p = strstr(p + 1, name))
        if ((p == settings::fault || p[-1] == ',') && (p[length] == '\0' || p[length] == ','))
            return true;
    return false;
}

}  // namespace outbox

#endif
