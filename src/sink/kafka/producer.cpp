// The Kafka sink: one producer, idempotent and gapless but where SinkOptions::alone asks for another. Delivery reports, errors
// and log lines come as events on librdkafka's main queue and are taken by collect() on the relay's thread; nothing of ours
// runs on librdkafka's.
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/buffer.hpp"
#include "core/topic.hpp"
#include "core/wire.hpp"
#include "sink/kafka/attendant.hpp"
#include "sink/kafka/codes.hpp"
#include "sink/kafka/config.hpp"
#include "sink/kafka/destinations.hpp"
#include "sink/kafka/handle.hpp"
#include "sink/kafka/notices.hpp"
#include "sink/kafka/rules.hpp"
#include "sink/sink.hpp"

namespace outbox::sink {

namespace kafka {

namespace {

using core::Verdict;

void* opaque_of(std::uint32_t tag) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(tag));
}
std::uint32_t tag_of(const rd_kafka_message_t& message) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(message._private));
}

std::int64_t milliseconds(std::int64_t microseconds) {
    return microseconds >= 0 ? microseconds / 1000 : -((-microseconds + 999) / 1000);
}

class Producer final : public Sink {
public:
    explicit Producer(const core::SinkOptions& options);
    ~Producer() override {
        if (rk_ != nullptr) close(std::chrono::seconds(5));
    }

    Accept send(const core::Event& event, std::uint32_t tag, Refusal& why) override;
    std::string_view destination(const core::Event& event) override;
    void flush() override { attendant_->flush(); }
    int fd() const override { return pipe_.read_end(); }
    std::size_t collect(std::span<Report> out) override;
    std::size_t outstanding() const override { return outstanding_; }
    void recall() override;
    void purge() override;
    bool fatal() const override { return fatal_code_ != 0; }
    std::int32_t fatal_code() const override { return fatal_code_; }
    void inquire(std::string_view destination) override { attendant_->inquire(destination); }
    Answer answer(std::string_view destination, std::string& words) const override;
    bool explain(std::int32_t code, const core::Event& event, std::string& words) override;
    std::string last_error() const override { return notices_.text(); }
    std::string describe(std::int32_t code) const override;
    std::string describe(std::int32_t code, std::string_view destination) const override;
    void fail_for_test() override {
        rd_kafka_test_fatal_error(rk_, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, "a test's fatal error");
    }
    bool close(std::chrono::milliseconds limit) override;

private:
    Headers make_headers() const;
    std::size_t wire_size(const core::Event& event) const;
    Accept refuse(Refusal& why, std::int32_t code, std::string reason) const;
    Accept refuse(Refusal& why, std::int32_t code, std::string_view topic, const core::Event& event) const;

    std::optional<Accept> judge(Destination& destination, std::string_view topic, const core::Event& event, Refusal& why);
    std::string too_large(std::string_view topic, std::size_t size, std::size_t largest) const;
    bool next_event();
    void take_error(rd_kafka_event_t* event);
    void look_for_the_end();
    void take_log(rd_kafka_event_t* event);
    void take_rules(rd_kafka_event_t* event);
    void look_for_failures(Destination& destination);
    Report report_of(const rd_kafka_message_t& message);
    void note_failure(const rd_kafka_message_t& message, Report& report);

    const core::Timestamp timestamp_;
    const bool alone_;
    core::TopicTemplate template_;
    core::Encoder encoder_;
    core::Buffer topic_;
    std::size_t largest_message_ = 0;
    bool compresses_ = false;

    Pipe pipe_;
    Notices notices_;
    std::optional<Attendant> attendant_;  // owns the client
    rd_kafka_t* rk_ = nullptr;            // nullptr: closed
    Queue queue_;
    Destinations destinations_;

    // Reports taken off the queue and not yet handed out: first those that look_for_failures() found, then what is left
    // of the event being read.
    std::vector<Report> found_;
    std::size_t found_taken_ = 0;
    EventPtr event_;

    std::size_t outstanding_ = 0;
    bool recalled_ = false;
    bool purged_ = false;
    std::int32_t fatal_code_ = 0;
};

core::WireSettings wire_settings(const core::SinkOptions& options, std::string& source) {
    source = options.source.empty() ? core::default_source(options.database) : options.source;
    return {options.format, source};
}

core::Encoder make_encoder(const core::SinkOptions& options) {
    std::string source;
    return core::Encoder(wire_settings(options, source));
}

Producer::Producer(const core::SinkOptions& options)
    : timestamp_(options.timestamp), alone_(options.alone), encoder_(make_encoder(options)), notices_(secrets_of(options)) {
    std::string error, hint;
    if (!template_.parse(options.topic, error, hint)) throw std::runtime_error("option \"topic\": " + error);

    Conf conf = make_conf(options);
    const std::string largest = property_of(conf.get(), "message.max.bytes");
    largest_message_ = largest.empty() ? std::numeric_limits<std::size_t>::max() : std::stoul(largest);

    compresses_ = property_of(conf.get(), "compression.codec") != "none";

    char text[512] = "";
    {
        const SignalsBlocked blocked;
        rk_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), text, sizeof text);
    }
    if (rk_ == nullptr) throw std::runtime_error(notices_.clean(text));
    [[maybe_unused]] rd_kafka_conf_t* taken = conf.release();
    try {
        attendant_.emplace(rk_);
    } catch (const std::system_error& failed) {
        rd_kafka_destroy(rk_);
        throw std::runtime_error(std::string("no thread for the producer: ") + failed.what());
    }
    queue_.reset(rd_kafka_queue_get_main(rk_));
    rd_kafka_set_log_queue(rk_, nullptr);  // to the main queue
    rd_kafka_queue_io_event_enable(queue_.get(), pipe_.write_end(), "", 1);
    // The descriptor tells only that the queue is no longer empty. It may not be: log lines are there already.
    pipe_.ring();
}

std::string_view Producer::destination(const core::Event& event) {
    std::string_view topic;
    template_.expand(event, topic_, topic);
    return topic;
}

Headers Producer::make_headers() const {
    const auto headers = encoder_.headers();
    Headers list(rd_kafka_headers_new(headers.size()));
    for (const core::WireHeader& header : headers) {
        // A null pointer is a null value, an empty string is not.
        const char* value = header.null ? nullptr : header.value.data() != nullptr ? header.value.data() : "";
        rd_kafka_header_add(list.get(), header.name.data(), static_cast<ssize_t>(header.name.size()), value,
                            static_cast<ssize_t>(header.value.size()));
    }
    return list;
}

Accept Producer::send(const core::Event& event, std::uint32_t tag, Refusal& why) {
    if (rk_ == nullptr || recalled_ || purged_) return refuse(why, RD_KAFKA_RESP_ERR__STATE, "the producer is being replaced");

    std::string_view topic;
    if (!template_.expand(event, topic_, topic)) {
        why = {Verdict::poison, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, notices_.clean(template_.explain(event))};
        return Accept::refused;
    }
    if (!encoder_.encode(event)) {
        why = {Verdict::poison, RD_KAFKA_RESP_ERR_INVALID_RECORD, "the headers are not a flat object of strings"};
        return Accept::refused;
    }
    Destination* const destination = destinations_.of(rk_, topic);
    if (destination == nullptr) return refuse(why, rd_kafka_last_error(), topic, event);
    // A topic that turns up between two events of a batch must not let the second overtake the first, which failed.
    if (!destination->proven) look_for_failures(*destination);
    if (destination->blocked != 0) return refuse(why, destination->blocked, topic, event);
    if (destination->rules.never_asked()) ask_rules(rk_, queue_.get(), destination->rules, rd_kafka_topic_name(destination->handle.get()));
    if (const auto judged = judge(*destination, topic, event, why)) return *judged;

    Headers headers = make_headers();
    const core::Bytes value = encoder_.value();
    // 0 lets librdkafka take the time of sending.
    const std::int64_t time = timestamp_ == core::Timestamp::created ? milliseconds(event.created_at) : 0;
    const rd_kafka_resp_err_t code = rd_kafka_producev(
        rk_, RD_KAFKA_V_RKT(destination->handle.get()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_KEY(const_cast<char*>(event.aggregate_id.data()), event.aggregate_id.size()),
        RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()), RD_KAFKA_V_HEADERS(headers.get()),
        RD_KAFKA_V_TIMESTAMP(time),
        RD_KAFKA_V_OPAQUE(opaque_of(tag)), RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        [[maybe_unused]] rd_kafka_headers_t* taken = headers.release();
        outstanding_++;
        return Accept::queued;
    }
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        if (outstanding_ != 0) return Accept::full;
        // Nothing is in the queue and still it does not fit.
        why = {Verdict::poison, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
               std::string(topic) + ": the event needs " + std::to_string(wire_size(event)) +
                   " bytes, more than the sink's queue.buffering.max.kbytes"};
        return Accept::refused;
    }
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        look_for_the_end();
    } else {
        // librdkafka knows the topic as missing or denied, and would look again in five minutes.
        attendant_->inquire(topic);
    }
    return refuse(why, code, topic, event);
}

// What the topic's own settings say of this event. Nothing: it may go.
std::optional<Accept> Producer::judge(Destination& destination, std::string_view topic, const core::Event& event, Refusal& why) {
    Rules& rules = destination.rules;
    const bool no_key = rules.compacted && core::is_null(event.aggregate_id);
    // What it comes to when compressed is not known before.
    const std::size_t size = rules.largest == 0 || compresses_ ? 0 : batch_size(event, encoder_);
    if (!no_key && size <= rules.largest) return std::nullopt;
    if (rules.fresh()) {
        why = {Verdict::poison, no_key ? RD_KAFKA_RESP_ERR_INVALID_RECORD : RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
               no_key ? notices_.clean(std::string(topic) + ": the topic is compacted (cleanup.policy), and the event has no key")
                      : too_large(topic, size, rules.largest)};
        return Accept::refused;
    }
    // Somebody may have changed it since. Where no answer comes the broker will say.
    if (rules.answer_may_come()) return Accept::unsure;
    if (rules.asked > rules.learned) return std::nullopt;
    ask_rules(rk_, queue_.get(), rules, rd_kafka_topic_name(destination.handle.get()));
    return Accept::unsure;
}

std::string Producer::too_large(std::string_view topic, std::size_t size, std::size_t largest) const {
    return notices_.clean(std::string(topic) + ": the event has " + std::to_string(size) +
                          " bytes, more than the topic's max.message.bytes (" + std::to_string(largest) + ") allows");
}

std::size_t Producer::wire_size(const core::Event& event) const {
    std::size_t size = encoder_.value().size() + event.aggregate_id.size();
    for (const core::WireHeader& header : encoder_.headers()) size += header.name.size() + header.value.size();
    return size;
}

Accept Producer::refuse(Refusal& why, std::int32_t code, std::string reason) const {
    why = {core::verdict_of(code), code, std::move(reason)};
    return Accept::refused;
}

Accept Producer::refuse(Refusal& why, std::int32_t code, std::string_view topic, const core::Event& event) const {
    why.code = code;
    why.verdict = core::verdict_of(code, template_.is_fixed() && topic == template_.text());
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
        why.reason = notices_.clean(std::string(topic) + ": the event has " + std::to_string(wire_size(event)) +
                                    " bytes, more than the sink's message.max.bytes (" +
                                    std::to_string(largest_message_) + ") allows");
    } else {
        why.reason = describe(code, topic);
    }
    return Accept::refused;
}

// ---- reports -----------------------------------------------------------------------------------------------

// The next event with delivery reports becomes event_; errors and log lines before it are served. False: none.
bool Producer::next_event() {
    for (;;) {
        event_.reset(rd_kafka_queue_poll(queue_.get(), 0));
        if (!event_) return false;
        switch (rd_kafka_event_type(event_.get())) {
            case RD_KAFKA_EVENT_DR: return true;
            case RD_KAFKA_EVENT_ERROR: take_error(event_.get()); break;
            case RD_KAFKA_EVENT_LOG: take_log(event_.get()); break;
            case RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT: take_rules(event_.get()); break;
            default: break;
        }
    }
}

void Producer::take_error(rd_kafka_event_t* event) {
    const rd_kafka_resp_err_t code = rd_kafka_event_error(event);
    const char* said = rd_kafka_event_error_string(event);
    if (code == RD_KAFKA_RESP_ERR__FATAL) return look_for_the_end();
    notices_.error(code, said != nullptr ? said : rd_kafka_err2str(code));
}

void Producer::look_for_the_end() {
    if (fatal_code_ != 0) return;
    char text[512] = "";
    fatal_code_ = rd_kafka_fatal_error(rk_, text, sizeof text);
    if (fatal_code_ != 0) notices_.error(RD_KAFKA_RESP_ERR__FATAL, text);
}

void Producer::take_log(rd_kafka_event_t* event) {
    const char* facility = nullptr;
    const char* text = nullptr;
    int level = 0;
    if (rd_kafka_event_log(event, &facility, &text, &level) == 0 && facility != nullptr && text != nullptr) {
        notices_.log(facility, text);
    }
}

void Producer::take_rules(rd_kafka_event_t* event) {
    Rules rules;
    const std::string topic = answered_rules(event, rules);
    Destination* const destination = destinations_.known(topic);
    if (destination == nullptr) return;
    rules.asked = destination->rules.asked;
    rules.learned = Rules::Clock::now();
    destination->rules = rules;
}

Report Producer::report_of(const rd_kafka_message_t& message) {
    Report report{tag_of(message), Verdict::delivered, message.err};
    if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        note_failure(message, report);
        return report;
    }
    notices_.clear();
    if (!destinations_.all_proven()) {
        if (Destination* const destination = destinations_.of(message.rkt)) destinations_.prove(*destination);
    }
    return report;
}

void Producer::note_failure(const rd_kafka_message_t& message, Report& report) {
    const char* topic = message.rkt != nullptr ? rd_kafka_topic_name(message.rkt) : "";
    report.verdict = core::verdict_of(message.err, template_.is_fixed() && topic == template_.text());
    // A message that waits to be sent again is purged from the queue too.
    if (report.verdict == Verdict::unsent && rd_kafka_message_status(&message) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED) {
        report.verdict = Verdict::unknown;
    }
    // A refused request makes a gapless producer fatal; the event that says so may come later than the reports.
    look_for_the_end();
    if (alone_) return;  // it fails nobody else
    if (Destination* const destination = destinations_.of(message.rkt)) destinations_.block(*destination, message.err);
}

// Takes what reports there are so that a failure of this topic is known before anything more goes to it.
void Producer::look_for_failures(Destination& destination) {
    if (outstanding_ == 0 || destination.blocked != 0) return;
    const rd_kafka_message_t* messages[64];
    while (event_ || next_event()) {
        while (const std::size_t count = rd_kafka_event_message_array(event_.get(), messages, std::size(messages))) {
            for (std::size_t i = 0; i < count; i++) found_.push_back(report_of(*messages[i]));
        }
        event_.reset();
    }
    if (found_.size() > found_taken_) pipe_.ring();  // the queue will not tell of them again
}

std::size_t Producer::collect(std::span<Report> out) {
    if (rk_ == nullptr) return 0;
    pipe_.read_dry();  // before the queue: what comes after rings again
    std::size_t count = 0;
    while (found_taken_ < found_.size() && count < out.size()) out[count++] = found_[found_taken_++];
    if (found_taken_ == found_.size()) {
        found_.clear();
        found_taken_ = 0;
    }

    const rd_kafka_message_t* messages[256];
    while ((event_ || next_event()) && count < out.size()) {
        const std::size_t room = std::min(std::size(messages), out.size() - count);
        const std::size_t taken = rd_kafka_event_message_array(event_.get(), messages, room);
        for (std::size_t i = 0; i < taken; i++) out[count++] = report_of(*messages[i]);
        if (taken < room) event_.reset();
    }
    if (event_ || !found_.empty()) pipe_.ring();  // what did not fit: nothing else would say so
    outstanding_ -= count;
    if (outstanding_ == 0) destinations_.unblock();
    return count;
}

void Producer::recall() {
    if (rk_ == nullptr || recalled_ || purged_) return;
    recalled_ = true;
    rd_kafka_purge(rk_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

void Producer::purge() {
    if (rk_ == nullptr || purged_) return;
    purged_ = true;
    rd_kafka_purge(rk_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

// ---- words -------------------------------------------------------------------------------------------------

std::string Producer::describe(std::int32_t code) const {
    if (tells_nothing(code) && !notices_.text().empty()) return notices_.text();
    return words_of(code);
}

std::string Producer::describe(std::int32_t code, std::string_view destination) const {
    std::string words;
    if (tells_nothing(code)) {
        words = attendant_->finding(destination);
        // What concerns all topics needs no topic's name.
        if (words.empty() && !notices_.text().empty()) return notices_.text();
    }
    if (words.empty()) words = words_of(code);
    return notices_.clean(std::string(destination) + ": " + words);
}

bool Producer::explain(std::int32_t code, const core::Event& event, std::string& words) {
    const std::string_view topic = destination(event);
    words = describe(code, topic);
    if (code != RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && code != RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE) return true;
    const Destination* const known = destinations_.known(topic);
    const std::size_t largest = known != nullptr ? known->rules.largest : 0;
    encoder_.encode(event);
    words += ": the event has " + std::to_string(batch_size(event, encoder_)) + " bytes" + (compresses_ ? " before compression" : "");
    if (largest != 0) words += ", the topic's max.message.bytes is " + std::to_string(largest);
    words = notices_.clean(words);
    return largest != 0 || known == nullptr || !known->rules.answer_may_come();
}

Sink::Answer Producer::answer(std::string_view destination, std::string& words) const {
    const std::optional<bool> answered = attendant_->answered(destination);
    words = attendant_->finding(destination);
    const Destination* const known = destinations_.known(destination);
    const int in_sync = attendant_->in_sync(destination);
    if (words.empty() && known != nullptr && in_sync != 0 && in_sync < known->rules.in_sync) {
        words = "a partition has " + std::to_string(in_sync) + " replicas in sync, and min.insync.replicas is " +
                std::to_string(known->rules.in_sync);
    }
    return !answered ? Answer::unknown : *answered ? Answer::yes : Answer::no;
}

// ---- the end -----------------------------------------------------------------------------------------------

bool Producer::close(std::chrono::milliseconds limit) {
    if (rk_ != nullptr) {
        // Everything that refers to the client first, the descriptor before its pipe.
        event_.reset();
        destinations_.clear();
        rd_kafka_queue_io_event_enable(queue_.get(), -1, nullptr, 0);
        queue_.reset();
        rk_ = nullptr;
        outstanding_ = 0;
    }
    return attendant_->destroy(limit);
}

}  // namespace

}  // namespace kafka

std::unique_ptr<Sink> make_kafka(const core::SinkOptions& options) {
    return std::make_unique<kafka::Producer>(options);
}

}  // namespace outbox::sink
