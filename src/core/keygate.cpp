#include "core/keygate.hpp"

#include "core/keyhash.hpp"

namespace outbox::core {

std::size_t KeyGate::hash(const View& key) {
    return static_cast<std::size_t>(mix_bits(key_hash(key.destination) + key_hash(key.key)));
}

bool KeyGate::block(std::string_view destination, Bytes key) {
    if (is_null(key) || blocked(destination, key)) return false;
    if (maybe_.empty()) maybe_.resize(kBits);
    maybe_[hash({destination, key}) % kBits] = true;
    std::string bytes;
    bytes.reserve(destination.size() + key.size());
    bytes.append(destination).append(key);
    keys_.insert({std::move(bytes), destination.size()});
    return true;
}

bool KeyGate::blocked(std::string_view destination, Bytes key) const {
    return !keys_.empty() && !is_null(key) && maybe_[hash({destination, key}) % kBits] && keys_.contains(View{destination, key});
}

void KeyGate::release(std::string_view destination, Bytes key) {
    if (auto found = keys_.find(View{destination, key}); found != keys_.end()) keys_.erase(found);
}

std::size_t find_overtaking(std::span<const Outcome> batch) {
    KeyGate failed;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Outcome& event = batch[i];
        if (!event.delivered) {
            failed.block(event.destination, event.key);
        } else if (failed.blocked(event.destination, event.key)) {
            return i;
        }
    }
    return kNoOvertaking;
}

}  // namespace outbox::core
