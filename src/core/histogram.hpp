// A histogram with fixed bounds: plain numbers, nothing allocated. Values are whole (microseconds, events).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace outbox::core {

// `kBounds`: an array of growing numbers. Bucket i holds the values that are at most kBounds[i] and above the bound before, the
// last bucket those above all bounds. Not cumulative: whoever shows it adds up.
template <const auto& kBounds>
struct Histogram {
    static constexpr std::size_t kBuckets = std::size(kBounds) + 1;

    std::int64_t buckets[kBuckets]{};
    std::int64_t sum = 0;

    // Values come in runs (the ages of a batch's events): the search begins where the last one ended.
    constexpr void add(std::int64_t value) {
        while (at_ + 1 < kBuckets && value > kBounds[at_]) ++at_;
        while (at_ > 0 && value <= kBounds[at_ - 1]) --at_;
        ++buckets[at_];
        sum += value;
    }

    constexpr std::int64_t count() const {
        std::int64_t n = 0;
        for (std::int64_t bucket : buckets) n += bucket;
        return n;
    }

private:
    std::size_t at_ = 0;
};

}  // namespace outbox::core
