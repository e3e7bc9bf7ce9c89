// The HTTP sink: a request per event or for several, `concurrency` of them at once, and of a key one after the other. An answer speaks of
// its own request alone, so nothing has to be found out afterwards; what waits behind a failed event of its key is handed back unsent.
#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/http_message.hpp"
#include "core/http_status.hpp"
#include "sink/http/client.hpp"
#include "sink/http/endpoint.hpp"
#include "sink/http/request.hpp"
#include "sink/http/signature.hpp"
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
    Accept send_together(std::span<const core::Event* const> events, std::span<const std::uint32_t> tags, Refusal& why) override;
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
    struct Request;
    using RequestPtr = std::shared_ptr<Request>;
    struct Request {
        std::vector<std::uint32_t> tags;  // of its events
        std::vector<std::string> keys;    // each once
        std::vector<RequestPtr> apart;    // of several events: each of them by itself, in their order
        core::HttpMessage message;
        std::unique_ptr<Handle> handle;  // while in flight
        std::size_t behind = 0;          // keys in whose queue it is not the first
        bool given_up = false;
    };

    RequestPtr request_of(const core::Event& event, std::uint32_t tag);
    bool refuse_recalled(Refusal& why) const;
    void enqueue(RequestPtr request);
    void work();
    void start();
    void ended(Request& request, int code);
    void judge(const Request& request, const Handle::Answer& answer);
    void take_apart(const Request& request, std::int32_t status);
    void report(const Request& request, Verdict verdict, std::int32_t code = 0, const std::string& words = {});
    void give_up(Request& request);
    void release_keys(const Request& request);
    void fail_key(const std::string& key);

    const core::SinkOptions options_;
    Endpoint& endpoint_;
    core::HttpEncoder encoder_;
    Client client_;
    std::vector<std::unique_ptr<Handle>> idle_;
    std::deque<RequestPtr> ready_;
    std::unordered_map<void*, RequestPtr> flying_;  // by libcurl's handle
    // Of a key, in order: what is ready or in flight, and what waits behind that. A request of several keys waits until it is the first of all.
    std::unordered_map<std::string, std::deque<RequestPtr>> keys_;
    std::unordered_set<std::string> failed_;  // keys with a failed event, until the caller knows of it
    std::deque<Report> reports_;
    std::size_t outstanding_ = 0;
    bool recalled_ = false, strained_ = false;
    std::string last_error_;
};

Sender::Sender(const core::SinkOptions& options)
    : options_(options), endpoint_(Endpoint::of(options)), encoder_(options_), client_(options.http.concurrency) {
    if (const core::OptionError error = core::check_server(options); !error.message.empty()) throw std::runtime_error(error.message);
    if (const core::OptionError error = core::check_http_mapping(options.http); !error.message.empty()) throw std::runtime_error(error.message);
    idle_.push_back(std::make_unique<Handle>(options_));  // says at once what libcurl does not take
}

bool Sender::refuse_recalled(Refusal& why) const {
    if (recalled_) why = {Verdict::outage, kNoAnswer, last_error_.empty() ? "the sink is being replaced" : last_error_};
    return recalled_;
}

// Null: its headers cannot be read.
Sender::RequestPtr Sender::request_of(const core::Event& event, std::uint32_t tag) {
    auto request = std::make_shared<Request>();
    if (!encoder_.encode(event, request->message)) return nullptr;
    request->tags = {tag};
    if (!core::is_null(event.aggregate_id)) request->keys.emplace_back(event.aggregate_id);
    return request;
}

Accept Sender::send(const core::Event& event, std::uint32_t tag, Refusal& why) {
    if (refuse_recalled(why)) return Accept::refused;
    RequestPtr request = request_of(event, tag);
    if (request == nullptr) {
        why = {Verdict::poison, 0, "the headers are not a flat object of strings"};
        return Accept::refused;
    }
    outstanding_++;
    enqueue(std::move(request));
    start();
    return Accept::queued;
}

Accept Sender::send_together(std::span<const core::Event* const> events, std::span<const std::uint32_t> tags, Refusal& why) {
    if (refuse_recalled(why)) return Accept::refused;
    auto request = std::make_shared<Request>();
    request->tags.assign(tags.begin(), tags.end());
    for (std::size_t i = 0; i < events.size(); i++) {
        RequestPtr alone = request_of(*events[i], tags[i]);
        if (alone == nullptr) {
            why = {Verdict::poison, 0, "the headers of an event are not a flat object of strings"};
            return Accept::refused;
        }
        if (!alone->keys.empty() && std::find(request->keys.begin(), request->keys.end(), alone->keys[0]) == request->keys.end())
            request->keys.push_back(alone->keys[0]);
        request->apart.push_back(std::move(alone));
    }
    encoder_.encode_together(events, request->message);
    request->message.id = id_together(events);
    outstanding_ += events.size();
    enqueue(std::move(request));
    start();
    return Accept::queued;
}

void Sender::enqueue(RequestPtr request) {
    if (std::any_of(request->keys.begin(), request->keys.end(), [this](const std::string& key) { return failed_.contains(key); })) {
        give_up(*request);
        return;
    }
    for (const std::string& key : request->keys) {
        auto& queue = keys_[key];
        if (!queue.empty()) request->behind++;
        queue.push_back(request);
    }
    if (request->behind == 0) ready_.push_back(std::move(request));
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
        release_keys(request);
        return;
    }
    if (verdict == Verdict::refused && !request.apart.empty()) {
        take_apart(request, code);
        return;
    }
    report(request, verdict, code, answer.words);
    for (const std::string& key : request.keys) fail_key(key);
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

// One of them is at fault, and none was taken: each by itself, in the places that they had together.
void Sender::take_apart(const Request& request, std::int32_t status) {
    if (recalled_) {  // nothing more leaves; the status tells the caller what these are
        report(request, Verdict::unsent, status);
        return;
    }
    for (auto alone = request.apart.rbegin(); alone != request.apart.rend(); ++alone) {
        if ((*alone)->keys.empty()) continue;
        auto& queue = keys_[(*alone)->keys[0]];
        if (!queue.empty() && queue.front().get() == &request) queue.pop_front();
        queue.push_front(*alone);
    }
    for (auto alone = request.apart.rbegin(); alone != request.apart.rend(); ++alone) {
        (*alone)->behind = !(*alone)->keys.empty() && keys_[(*alone)->keys[0]].front() != *alone;
        if ((*alone)->behind == 0) ready_.push_front(*alone);
    }
}

void Sender::report(const Request& request, Verdict verdict, std::int32_t code, const std::string& words) {
    for (const std::uint32_t tag : request.tags) reports_.push_back({tag, verdict, code, words});
}

// It will not be sent, and so nothing that is behind it in any of its keys.
void Sender::give_up(Request& request) {
    if (std::exchange(request.given_up, true)) return;
    report(request, Verdict::unsent);
    for (const std::string& key : request.keys) fail_key(key);
}

void Sender::release_keys(const Request& request) {
    for (const std::string& key : request.keys) {
        const auto known = keys_.find(key);
        if (known == keys_.end() || known->second.front().get() != &request) continue;
        known->second.pop_front();
        if (known->second.empty())
            keys_.erase(known);
        else if (RequestPtr& next = known->second.front(); --next->behind == 0)
            ready_.push_back(next);
    }
}

// What is behind a failed event must not leave before it. What is before it goes on.
void Sender::fail_key(const std::string& key) {
    failed_.insert(key);
    auto known = keys_.extract(key);
    if (known.empty()) return;
    for (const RequestPtr& request : known.mapped()) {
        if (request->behind > 0) give_up(*request);
    }
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
    for (const RequestPtr& request : std::exchange(ready_, {})) give_up(*request);
    for (auto& [key, queue] : std::exchange(keys_, {})) {
        for (const RequestPtr& request : queue) {
            if (request->behind > 0) give_up(*request);
        }
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
