// The wire path and the checks take no memory per event once their buffers have grown: counted, not believed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/checks.hpp"
#include "core/glob.hpp"
#include "core/keygate.hpp"
#include "core/topic.hpp"
#include "core/wire.hpp"

namespace {

std::size_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
    ++allocations;
    if (void* memory = std::malloc(size ? size : 1)) return memory;
    throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

using namespace outbox::core;

namespace {

Event event(std::string_view payload, bool json = true) {
    Event e;
    e.aggregate_type = "payment";
    e.aggregate_id = "pay-1\n";
    e.event_type = "payment.captured";
    e.payload = payload;
    e.payload_is_json = json;
    e.headers = R"({"a": "1\n", "b": null, "c": "2"})";
    e.replayed = true;
    return e;
}

template <typename Action>
std::size_t allocations_of(Action action) {
    const std::size_t before = allocations;
    for (int i = 0; i < 100; ++i) action();
    return allocations - before;
}

}  // namespace

TEST(Allocations, TheCounterCounts) {
    EXPECT_GE(allocations_of([] { operator delete(operator new(1)); }), 100u);
}

TEST(Allocations, EncodingTakesNone) {
    const std::string large(100'000, '1');
    for (const Format format :
         {Format::envelope, Format::payload, Format::debezium, Format::cloudevents, Format::cloudevents_structured}) {
        Encoder encoder({format, "/outbox/shop"});
        auto encode_all = [&] {
            encoder.encode(event("{}"));
            encoder.encode(event(large));
            encoder.encode(event(large, false));
            encoder.encode(event({}));
        };
        encode_all();  // the buffers grow
        EXPECT_EQ(allocations_of(encode_all), 0u);
    }
}

TEST(Allocations, RoutingTakesNone) {
    TopicTemplate topics;
    EventFilter filter;
    std::string error, hint;
    ASSERT_TRUE(filter.parse("order/*,pay*/*captured", error, hint));
    Buffer out;
    std::string_view topic;
    const KeyGate gate;
    const Event e = event("{}");
    topics.expand(e, out, topic);
    EXPECT_EQ(allocations_of([&] {
                  topics.expand(e, out, topic);
                  filter.matches(e);
                  gate.blocked(topic, e.aggregate_id);
              }),
              0u);
}

TEST(Allocations, CheckingAGoodEventTakesNone) {
    Event e = event("{}");
    e.headers = R"({"a": "1", "b": null, "ключ": "значение"})";
    ASSERT_FALSE(check_event(e, 1'000'000));
    EXPECT_EQ(allocations_of([&] { check_event(e, 1'000'000); }), 0u);
}
