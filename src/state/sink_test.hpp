// What outbox.test_sink and the worker that does the testing tell each other, in a segment of dynamic shared memory: the
// client library starts threads, and those have no place in a client's backend.
#pragma once

namespace outbox {

struct SinkTest {
    static constexpr int kRows = 16;
    static constexpr int kLimitMs = 10'000;

    unsigned int database;
    char sink[256];  // UTF-8

    bool done;
    char error[512];  // why there are no rows; empty: there are
    int count;
    struct Row {
        char name[128];
        char detail[512];
        bool ok;
    } rows[kRows];
};

}  // namespace outbox
