#include "core/front.hpp"

#include <gtest/gtest.h>

using outbox::core::Front;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Looks that take the same time, one after the other.
class Looks {
public:
    explicit Looks(milliseconds each) : each_(each) {}

    // Where it began: 0 at the front, else the number of the look that ended there.
    std::int64_t next()
    {
        Front::Place begin = front.begin(now);
        now += each_;
        front.looked(each_, now);
        front.move({++number_, 0});
        return begin.time == std::numeric_limits<std::int64_t>::min() ? 0 : begin.time;
    }

    Front front;
    Front::Clock::time_point now{seconds(1000)};

private:
    milliseconds each_;
    std::int64_t number_ = 0;
};

}  // namespace

TEST(Front, WhereLooksAreShortEachBeginsThere) {
    Looks looks(milliseconds(1));
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
    EXPECT_EQ(looks.front.blind(looks.now), seconds(0));
    looks.next();
    EXPECT_EQ(looks.front.blind(looks.now), milliseconds(190));
    looks.now += seconds(1);
    EXPECT_EQ(looks.front.blind(looks.now), seconds(0));
}

TEST(Front, ALookThatFailedMovesNothing) {
    Looks looks(milliseconds(10));
    looks.front.begin(looks.now);
    EXPECT_EQ(looks.next(), 0);
    EXPECT_EQ(looks.next(), 1);
    looks.front.begin(looks.now);
    EXPECT_EQ(looks.next(), 2);
}
