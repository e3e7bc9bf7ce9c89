// The processes: one launcher, a scout per database now and then, a relay per sink and lane.
#pragma once

namespace outbox::worker {

void register_launcher();  // from _PG_init

}  // namespace outbox::worker
