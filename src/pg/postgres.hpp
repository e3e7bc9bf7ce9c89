// For the files of the PostgreSQL regime (outbox.cpp, api/, state/): PostgreSQL's headers. Such a file calls
// PostgreSQL directly and owns no C++ object with a destructor while it does (pg/guard.hpp).
#pragma once

#include "pg/compat.h"  // first: it defines PGDLLEXPORT
