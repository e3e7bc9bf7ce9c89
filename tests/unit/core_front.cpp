#include "core/front.hpp"

#include <gtest/gtest.h>

using namespace outbox::core;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

namespace {

// Looks that take the same time, one after the other.
class Looks {
public:
    explicit Looks(milliseconds worked, milliseconds waited = {}) : worked_(worked), waited_(waited) {}

    // Where it began: 0 at the front, else the number of the look that ended there.
    std::int64_t next()
    {
        Front::Place begin = front.begin(now);
        now.time += worked_ + waited_;
        now.worked += worked_;
        blind = front.end(now);
        front.move({++number_, 0});
        return begin.time == std::numeric_limits<std::int64_t>::min() ? 0 : begin.time;
    }

    Front front;
    Moment now{std::chrono::steady_clock::time_point{seconds(1000)}};
    nanoseconds blind{};

private:
    milliseconds worked_, waited_;
    std::int64_t number_ = 0;
};

}  // namespace

TEST(Front, WhereLooksAreShortEachBeginsThere) {
    Looks looks(milliseconds(1));
    for (int i = 0; i < 10; i++) EXPECT_EQ(looks.next(), 0);
}

TEST(Front, AndWhereTheyAreLongSinceTheMachineIsBusy) {
    Looks looks(milliseconds(1), milliseconds(500));
    for (int i = 0; i < 10; i++) EXPECT_EQ(looks.next(), 0);
}

TEST(Front, AfterALongOneTheNextBeginsWhereItEnded) {
    Looks looks(milliseconds(10));
    EXPECT_EQ(looks.next(), 0);
    EXPECT_EQ(looks.next(), 1);
    EXPECT_EQ(looks.next(), 2);
}

TEST(Front, ATwentiethOfTheTimeIsSpentThere) {
    Looks looks(milliseconds(10));
    int at_front = 0;
    for (int i = 0; i < 210; i++) at_front += looks.next() == 0;
    EXPECT_EQ(at_front, 10);
}

TEST(Front, WhoDidNotBeginThereIsBlindUntilSomebodyMay) {
    Looks looks(milliseconds(10));
    looks.next();
    EXPECT_EQ(looks.blind, seconds(0));
    looks.next();
    EXPECT_EQ(looks.blind, milliseconds(190));
    looks.now.time += milliseconds(190);
    EXPECT_EQ(looks.next(), 0);
}

TEST(Front, ALookThatFailedMovesNothing) {
    Looks looks(milliseconds(10));
    looks.front.begin(looks.now);
    EXPECT_EQ(looks.next(), 0);
    EXPECT_EQ(looks.next(), 1);
    looks.front.begin(looks.now);
    EXPECT_EQ(looks.next(), 2);
}
