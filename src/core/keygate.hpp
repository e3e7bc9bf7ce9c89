// The two guards of a key's order. An ordering key is a destination (Kafka: the topic) with an
// aggregate_id; an event without an aggregate_id has none.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/event.hpp"

namespace outbox::core {

// The keys behind which nothing may be sent: one of their events failed in this batch, or is parked. Copies what it is
// given. While it is empty, asking it costs nothing, and while it has some ten thousand keys, little: most of what is asked
// is not blocked, and a bit says so without a look at the table.
class KeyGate {
public:
    // Without effect for an event without a key. Returns whether the key is newly blocked.
    bool block(std::string_view destination, Bytes key);
    bool blocked(std::string_view destination, Bytes key) const;
    void release(std::string_view destination, Bytes key);

    bool empty() const { return keys_.empty(); }
    std::size_t size() const { return keys_.size(); }
    void clear() {
        keys_.clear();
        maybe_.clear();
    }

private:
    struct View {
        std::string_view destination, key;
    };
    struct Stored {
        std::string bytes;  // destination, then key
        std::size_t destination_size;
        View view() const {
            return {std::string_view(bytes).substr(0, destination_size),
                    std::string_view(bytes).substr(destination_size)};
        }
    };
    static View view(const View& key) { return key; }
    static View view(const Stored& key) { return key.view(); }
    static std::size_t hash(const View& key);

    struct Hash {
        using is_transparent = void;
        template <typename Key>
        std::size_t operator()(const Key& key) const {
            return hash(view(key));
        }
    };
    struct Equal {
        using is_transparent = void;
        template <typename A, typename B>
        bool operator()(const A& a, const B& b) const {
            const View x = view(a), y = view(b);
            return x.destination == y.destination && x.key == y.key;
        }
    };
    static constexpr std::size_t kBits = 1u << 18;  // 32 kB
    std::unordered_set<Stored, Hash, Equal> keys_;
    std::vector<bool> maybe_;  // by hash; false: no key of keys_ has it. Empty, or kBits of them
};

// One event of a batch, in id order, with what became of it.
struct Outcome {
    std::string_view destination;
    Bytes key;
    bool delivered = false;
};

inline constexpr std::size_t kNoOvertaking = static_cast<std::size_t>(-1);

// The index of the first delivered event that comes after a failed one of its key, or kNoOvertaking. Run over every
// batch: prevention should make it impossible, and if it happens it must not happen silently.
std::size_t find_overtaking(std::span<const Outcome> batch);

}  // namespace outbox::core
