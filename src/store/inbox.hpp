// Consumer side: the claims of outbox.inbox. C++ regime.
#pragma once

#include <cstdint>

#include "core/front.hpp"

namespace outbox::store {

// Deletes claims that are older, `limit` at most; none where `retention_s` is negative. Returns how many.
std::int64_t forget_claims(core::Front &front, std::int64_t retention_s, std::int64_t limit);

}  // namespace outbox::store
