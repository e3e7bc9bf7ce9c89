// Hooks into the server, installed once while the library is preloaded.
#pragma once

namespace outbox::api {

void install_hooks();

}  // namespace outbox::api
