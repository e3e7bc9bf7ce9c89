// Memory for the bytes of a batch: taken piece by piece, given back all at once, and kept for the next batch.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace outbox::core {

class Arena {
public:
    Arena() = default;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Uninitialised, not aligned, never null. Valid until clear().
    char* take(std::size_t size) {
        if (size > left_) next_block(size);
        char* start = at_;
        at_ += size;
        left_ -= size;
        return start;
    }

    // A copy that lives until clear(). A null view stays null, an empty one does not become null.
    std::string_view keep(std::string_view bytes) {
        if (bytes.data() == nullptr) return bytes;
        char* start = take(bytes.size());
        if (!bytes.empty()) std::memcpy(start, bytes.data(), bytes.size());
        return {start, bytes.size()};
    }

    // A batch of large events must not hold its memory for ever: of the blocks kKept stay.
    void clear() {
        large_.clear();
        if (blocks_.size() > kKept) blocks_.resize(kKept);
        used_ = 0;
        left_ = 0;
    }

private:
    static constexpr std::size_t kBlock = 256 << 10;
    static constexpr std::size_t kKept = 16;

    void next_block(std::size_t size) {
        if (size > kBlock) {
            large_.push_back(std::make_unique_for_overwrite<char[]>(size));
            at_ = large_.back().get();
            left_ = size;
            return;
        }
        if (used_ == blocks_.size()) blocks_.push_back(std::make_unique_for_overwrite<char[]>(kBlock));
        at_ = blocks_[used_++].get();
        left_ = kBlock;
    }

    std::vector<std::unique_ptr<char[]>> blocks_, large_;
    std::size_t used_ = 0;  // of the blocks
    static inline char nothing_[1] = {};  // what take(0) gives at first
    char* at_ = nothing_;
    std::size_t left_ = 0;
};

}  // namespace outbox::core
