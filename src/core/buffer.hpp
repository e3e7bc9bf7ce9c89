// A growable byte buffer that keeps its memory: cleared and filled again for each event, it allocates only when
// an event is larger than all before it.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace outbox::core {

class Buffer {
public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : data_(std::move(other.data_)),
          size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        capacity_ = std::exchange(other.capacity_, 0);
        return *this;
    }

    // The bytes must not be this buffer's own.
    void append(std::string_view bytes) {
        if (!bytes.empty()) std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
    }
    void append(char byte) { *extend(1) = byte; }

    // Makes the buffer `count` bytes longer and returns where to write them.
    char* extend(std::size_t count) {
        if (count > capacity_ - size_) grow(count);
        char* start = data_.get() + size_;
        size_ += count;
        return start;
    }

    // Views taken earlier stay valid as long as the size stays within what was reserved.
    void reserve(std::size_t total) {
        if (total > capacity_) grow(total - size_);
    }

    void clear() { size_ = 0; }
    void truncate(std::size_t size) { size_ = size < size_ ? size : size_; }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    // Never a null view, also when empty. Valid until the buffer grows or dies.
    std::string_view view() const { return {data_ ? data_.get() : "", size_}; }
    std::string_view view_from(std::size_t start) const { return view().substr(start); }

private:
    void grow(std::size_t count) {
        std::size_t wanted = size_ + count;
        std::size_t capacity = capacity_ < 256 ? 256 : capacity_ + capacity_ / 2;
        if (capacity < wanted) capacity = wanted;
        auto larger = std::make_unique_for_overwrite<char[]>(capacity);
        if (size_ != 0) std::memcpy(larger.get(), data_.get(), size_);
        data_ = std::move(larger);
        capacity_ = capacity;
    }

    std::unique_ptr<char[]> data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace outbox::core
