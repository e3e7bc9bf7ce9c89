// The HTTP sink: a request per event, `concurrency` of them at once, and of a key one after the other. An answer speaks of its own
// event alone, so nothing has to be found out afterwards; what waits behind a failed event of its key is handed back unsent.
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/http_message.hpp"
#include "core/http_status.hpp"
#include "sink/http/client.hpp"
#include "sink/http/endpoint.hpp"
#include "sink/http/request.hpp"
#include "sink/sink.hpp"

namespace outbox::sink {

namespace http {

namespace {

using core::Verdict;

constexpr std::int32_t kNoAnswer = -1;  // the code of what has no status

class Sender final : public Sink {
public:
    explicit Sender(const core::SinkOptions& options);
    ~Sender() override { purge(); }

    Accept send(const core::Event& event, std::uint32_t tag, Refusal& why) override;
    std::string_view destination(const core::Event&) override { return options_.http.host; }
    void flush() override { work(); }
    int fd() const override { return client_.fd(); }
    std::size_t collect(std::span<Report> out) override;
    std::size_t outstanding() const override { return outstanding_; }
    void recall() override;
    void purge() override;
    bool fatal() const override { return false; }
    bool paced() const override { return true; }
    Clock::time_point not_before() const override { return endpoint_.not_before(); }
    std::string last_error() const override { return last_error_; }
    std::string describe(std::int32_t code) const override {
        return code > 0 && last_error_.empty() ? core::status_words(code) : last_error_;
    }
    bool close(std::chrono::milliseconds limit) override {
        (void)limit;  // nothing here waits
        purge();
        reports_.clear();
        outstanding_ = 0;
        return lookups_left_behind() == 0;
    }

private:
    struct Request {
        std::uint32_t tag;
        bool keyed;
        std::string key;
        core::HttpMessage message;
        std::unique_ptr<Handle> handle;  // while in flight
    };
    using RequestPtr = std::unique_ptr<Request>;

    void work();
    void start();
    void ended(Request& request, int code);
    void judge(const Request& request, const Handle::Answer& answer);
    void report(const Request& request, Verdict verdict, std::int32_t code = 0, std::string words = {});
    void release_key(const std::string& key);
    void fail_key(const std::string& key);

    const core::SinkOptions options_;
    Endpoint& endpoint_;
    core::HttpEncoder encoder_;
    Client client_;
    std::vector<std::unique_ptr<Handle>> idle_;
    std::deque<RequestPtr> ready_;
    std::unordered_map<void*, RequestPtr> flying_;  // by libcurl's handle
    // A key that has a request ready or in flight, and what waits behind that.
    std::unordered_map<std::string, std::deque<RequestPtr>> keys_;
    std::unordered_set<std::string> failed_;  // keys with a failed event, until the caller knows of it
    std::deque<Report> reports_;
    std::size_t outstanding_ = 0;
    bool recalled_ = false, strained_ = false;
    std::string last_error_;
};

Sender::Sender(const core::SinkOptions& options)
    : options_(options), endpoint_(Endpoint::of(options)), encoder_(options_), client_(options.http.concurrency) {
    if (const core::OptionError error = core::check_http_server(options.http); !error.message.empty()) throw std::runtime_error(error.message);
    if (const core::OptionError error = core::check_http_mapping(options.http); !error.message.empty()) throw std::runtime_error(error.message);
    idle_.push_back(std::make_unique<Handle>(options_));  // says at once what libcurl does not take
}

Accept Sender::send(const core::Event& event, std::uint32_t tag, Refusal& why) {
    if (recalled_) {
        why = {Verdict::outage, kNoAnswer, last_error_.empty() ? "the sink is being replaced" : last_error_};
        return Accept::refused;
    }
    auto request = std::make_unique<Request>();
    if (!encoder_.encode(event, request->message)) {
        why = {Verdict::poison, 0, "the headers are not a flat object of strings"};
        return Accept::refused;
    }
    request->tag = tag;
    request->keyed = !core::is_null(event.aggregate_id);
    outstanding_++;
    if (request->keyed) {
        request->key = event.aggregate_id;
        if (failed_.contains(request->key)) {
            report(*request, Verdict::unsent);
            return Accept::queued;
        }
        const auto [known, first] = keys_.try_emplace(request->key);
        if (!first) {
            known->second.push_back(std::move(request));
            return Accept::queued;
        }
    }
    ready_.push_back(std::move(request));
    start();
    return Accept::queued;
}

// As many as the endpoint takes at once, and as the rate allows.
void Sender::start() {
    while (!ready_.empty() && flying_.size() < static_cast<std::size_t>(endpoint_.at_once())) {
        if (!endpoint_.take_turn(Clock::now())) {
            client_.wake_at(endpoint_.next_turn());
            return;
        }
        RequestPtr request = std::move(ready_.front());
        ready_.pop_front();
        if (idle_.empty()) idle_.push_back(std::make_unique<Handle>(options_));
        request->handle = std::move(idle_.back());
        idle_.pop_back();
        request->handle->prepare(request->message);
        void* const easy = request->handle->easy();
        flying_.emplace(easy, std::move(request));
        client_.add(easy);
    }
}

void Sender::work() {
    client_.run([this](void* easy, int code) {
        client_.remove(easy);
        auto flown = flying_.extract(easy);
        if (flown.empty()) return;
        ended(*flown.mapped(), code);
        idle_.push_back(std::move(flown.mapped()->handle));
    });
    start();
}

void Sender::ended(Request& request, int code) {
    const Handle::Answer answer = request.handle->answer(code);
    if (answer.status == 0 && !answer.resolved) lookup_left_behind();
    judge(request, answer);
}

void Sender::judge(const Request& request, const Handle::Answer& answer) {
    const Verdict verdict = answer.status == 0 ? Verdict::outage : core::verdict_of_status(answer.status);
    const std::int32_t code = answer.status == 0 ? kNoAnswer : answer.status;
    if (verdict == Verdict::delivered) {
        if (!recalled_) {  // what was on its way already takes back nothing that the endpoint has asked for since
            endpoint_.took();
            last_error_.clear();
        }
        report(request, verdict, code);
        if (request.keyed) release_key(request.key);
        return;
    }
    report(request, verdict, code, answer.words);
    if (request.keyed) fail_key(request.key);
    if (verdict == Verdict::refused) return;
    // The endpoint's fault: nothing more leaves.
    last_error_ = answer.words;
    if (answer.retry_after_s > 0) {
        const std::chrono::milliseconds asked(std::min<std::int64_t>(answer.retry_after_s, 1'000'000) * 1000);
        endpoint_.wait_until(Clock::now() + std::min(asked, std::chrono::milliseconds(options_.http.retry_after_limit_ms)));
    }
    if (core::is_strained(answer.status) && !std::exchange(strained_, true)) endpoint_.strained();
    recall();
}

void Sender::report(const Request& request, Verdict verdict, std::int32_t code, std::string words) {
    reports_.push_back({request.tag, verdict, code, std::move(words)});
}

void Sender::release_key(const std::string& key) {
    const auto known = keys_.find(key);
    if (known == keys_.end()) return;
    if (known->second.empty()) {
        keys_.erase(known);
        return;
    }
    ready_.push_back(std::move(known->second.front()));
    known->second.pop_front();
}

// What is behind it must not leave before it.
void Sender::fail_key(const std::string& key) {
    failed_.insert(key);
    auto known = keys_.extract(key);
    if (known.empty()) return;
    for (const RequestPtr& request : known.mapped()) report(*request, Verdict::unsent);
}

std::size_t Sender::collect(std::span<Report> out) {
    work();
    std::size_t count = 0;
    while (!reports_.empty() && count < out.size()) {
        out[count++] = std::move(reports_.front());
        reports_.pop_front();
    }
    if (!reports_.empty()) client_.wake_at(Clock::now());  // nothing else would say so
    outstanding_ -= count;
    if (outstanding_ == 0) failed_.clear();
    return count;
}

void Sender::recall() {
    if (std::exchange(recalled_, true)) return;
    for (const RequestPtr& request : ready_) report(*request, Verdict::unsent);
    ready_.clear();
    for (auto& [key, waiting] : keys_) {
        for (const RequestPtr& request : waiting) report(*request, Verdict::unsent);
        waiting.clear();
    }
    if (!reports_.empty()) client_.wake_at(Clock::now());
}

void Sender::purge() {
    recall();
    for (auto& [easy, request] : flying_) {
        client_.remove(easy);
        if (!request->handle->answer(0).resolved) lookup_left_behind();
        report(*request, Verdict::unknown);
    }
    flying_.clear();
    if (!reports_.empty()) client_.wake_at(Clock::now());
}

}  // namespace

}  // namespace http

std::unique_ptr<Sink> make_http(const core::SinkOptions& options) { return std::make_unique<http::Sender>(options); }

}  // namespace outbox::sink
