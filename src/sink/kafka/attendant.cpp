#include "sink/kafka/attendant.hpp"

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "sink/kafka/handle.hpp"
#include "sink/kafka/metadata.hpp"

namespace outbox::sink::kafka {

namespace {

// Long enough for librdkafka's threads to wake and make their requests; it ends sooner when all is acknowledged.
constexpr int kFlushMs = 10;
constexpr int kMetadataMs = 1000;
// A topic is asked for again at most so often.
constexpr std::chrono::milliseconds kInquiryPause{500};

// Constant-initialised and without a destructor: threads may still count at exit.
std::atomic<int> clients_alive{0};

}  // namespace

int clients() { return clients_alive.load(); }

// What the threads know. Each of them holds a reference, so a thread that is left behind has all it needs.
struct Attendant::Shared {
    struct Inquiry {
        std::chrono::steady_clock::time_point asked{};
        std::string finding;
        std::optional<bool> answered;
        int in_sync = 0;
    };

    rd_kafka_t* rk;
    mutable std::mutex mutex;
    std::condition_variable wake;      // for the threads
    std::condition_variable finished;  // for destroy()
    bool flush_wanted = false;
    bool ending = false;
    bool gone = false;
    bool inquiring = false;  // the second thread exists; made by the first question
    std::set<std::string, std::less<>> questions;
    std::map<std::string, Inquiry, std::less<>> inquiries;

    explicit Shared(rd_kafka_t* client) : rk(client) {}

    // First thread: flushes, and in the end destroys.
    void serve() {
        std::unique_lock lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return flush_wanted || ending; });
            if (ending) break;
            flush_wanted = false;
            lock.unlock();
            rd_kafka_flush(rk, kFlushMs);
            lock.lock();
        }
        wake.wait(lock, [&] { return !inquiring; });
        lock.unlock();
        rd_kafka_destroy(rk);
        clients_alive--;
        lock.lock();
        gone = true;
        finished.notify_all();
    }

    // Second thread: asks, one topic after the other.
    void inquire() {
        std::unique_lock lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return !questions.empty() || ending; });
            if (ending) break;
            const std::string topic = std::move(questions.extract(questions.begin()).value());
            lock.unlock();
            Finding finding = metadata_finding(rk, topic, kMetadataMs);
            lock.lock();
            Inquiry& inquiry = inquiries[topic];
            inquiry.finding = std::move(finding.words);
            inquiry.answered = finding.answered;
            inquiry.in_sync = finding.in_sync;
        }
        inquiring = false;
        wake.notify_all();
    }
};

Attendant::Attendant(rd_kafka_s* rk) : shared_(std::make_shared<Shared>(rk)) {
    const SignalsBlocked blocked;
    std::thread([shared = shared_] { shared->serve(); }).detach();
    clients_alive++;  // before any call of destroy()
}

Attendant::~Attendant() { destroy(std::chrono::milliseconds(0)); }

void Attendant::flush() {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->flush_wanted = true;
    }
    shared_->wake.notify_all();
}

void Attendant::inquire(std::string_view topic) {
    {
        const std::lock_guard lock(shared_->mutex);
        if (shared_->ending) return;
        const auto now = std::chrono::steady_clock::now();
        auto known = shared_->inquiries.find(topic);
        if (known == shared_->inquiries.end()) {
            known = shared_->inquiries.emplace(std::string(topic), Shared::Inquiry{}).first;
        } else if (now - known->second.asked < kInquiryPause) {
            return;
        }
        known->second.asked = now;
        known->second.answered.reset();
        shared_->questions.emplace(topic);
        if (!shared_->inquiring) {
            const SignalsBlocked blocked;
            std::thread([shared = shared_] { shared->inquire(); }).detach();
            shared_->inquiring = true;
        }
    }
    shared_->wake.notify_all();
}

std::string Attendant::finding(std::string_view topic) const {
    const std::lock_guard lock(shared_->mutex);
    const auto known = shared_->inquiries.find(topic);
    return known == shared_->inquiries.end() ? std::string() : known->second.finding;
}

int Attendant::in_sync(std::string_view topic) const {
    const std::lock_guard lock(shared_->mutex);
    const auto known = shared_->inquiries.find(topic);
    return known == shared_->inquiries.end() ? 0 : known->second.in_sync;
}

std::optional<bool> Attendant::answered(std::string_view topic) const {
    const std::lock_guard lock(shared_->mutex);
    const auto known = shared_->inquiries.find(topic);
    return known == shared_->inquiries.end() ? std::nullopt : known->second.answered;
}

bool Attendant::destroy(std::chrono::milliseconds limit) {
    std::unique_lock lock(shared_->mutex);
    shared_->ending = true;
    shared_->wake.notify_all();
    return shared_->finished.wait_for(lock, limit, [&] { return shared_->gone; });
}

}  // namespace outbox::sink::kafka
