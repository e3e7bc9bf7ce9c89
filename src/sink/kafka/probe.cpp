// outbox.test_sink: tries what a relay would need, short of publishing anything, and says in words what is missing.
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/topic.hpp"
#include "sink/kafka/config.hpp"
#include "sink/kafka/handle.hpp"
#include "sink/kafka/metadata.hpp"
#include "sink/kafka/notices.hpp"
#include "sink/sink.hpp"

namespace outbox::sink {

namespace kafka {

namespace {

using std::chrono::milliseconds;

// The producer id is asked for as soon as a broker is there; a cluster that refuses it says so within this time.
constexpr milliseconds kProducerIdPause{300};
// A cluster that cannot tell of rights (and librdkafka's mock) leaves the question without an answer.
[[maybe_unused]] constexpr int kRightsMs = 2000;
// After one broker has failed for good, others of the list get so long.
constexpr milliseconds kGrace{1000};

// What the questions found. The asking thread owns the client and outlives an impatient caller, so all it needs is here.
struct Talk {
    std::mutex mutex;
    std::condition_variable changed;
    bool finished = false;
    bool given_up = false;

    rd_kafka_t* rk = nullptr;
    std::string topic;  // empty: no fixed one
    Clock::time_point until;

    rd_kafka_resp_err_t cluster = RD_KAFKA_RESP_ERR__IN_PROGRESS;
    int brokers = 0;
    std::string topic_finding;
    std::string topic_advice;
    int partitions = 0;
    rd_kafka_resp_err_t leader = RD_KAFKA_RESP_ERR__IN_PROGRESS;
    enum class Write { unasked, yes, no } write = Write::unasked;
    std::string write_words;

    int left_ms() {
        const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
        return static_cast<int>(std::clamp<std::int64_t>(left, 1, 600'000));
    }
    bool go_on() {
        const std::lock_guard lock(mutex);
        return !given_up && Clock::now() < until;
    }
    void ask();
    void ask_cluster();
    void ask_topic();
    void ask_leaders(const struct rd_kafka_metadata_topic& topic);
    void ask_rights();
};

struct ReleaseMetadata {
    void operator()(const struct rd_kafka_metadata* metadata) const noexcept { rd_kafka_metadata_destroy(metadata); }
};
using Metadata = std::unique_ptr<const struct rd_kafka_metadata, ReleaseMetadata>;

void Talk::ask() {
    ask_cluster();
    if (cluster == RD_KAFKA_RESP_ERR_NO_ERROR && !topic.empty() && go_on()) {
        ask_topic();
        if (topic_finding.empty() && go_on()) ask_rights();
    }
    rd_kafka_t* const client = rk;
    {
        const std::lock_guard lock(mutex);
        finished = true;
        changed.notify_all();
    }
    // The caller still reads events of the client: it says when it is done.
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return given_up; });
    }
    rd_kafka_destroy(client);
}

void Talk::ask_cluster() {
    const struct rd_kafka_metadata* answer = nullptr;
    const rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, nullptr, &answer, left_ms());
    const Metadata metadata(answer);
    const std::lock_guard lock(mutex);
    cluster = code;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) brokers = metadata->broker_cnt;
}

std::string advice_on_topic(rd_kafka_resp_err_t code) {
    switch (code) {
        case RD_KAFKA_RESP_ERR_NO_ERROR: return "The cluster has to elect one: look at its brokers.";
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED: return "Give the sink's user the right WRITE on the topic.";
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
            return "Create the topic, or give the sink's user the right WRITE on it.";
        default: return {};
    }
}

void Talk::ask_topic() {
    const Topic handle(rd_kafka_topic_new(rk, topic.c_str(), nullptr));
    if (!handle) {
        topic_finding = rd_kafka_err2str(rd_kafka_last_error());
        return;
    }
    const struct rd_kafka_metadata* answer = nullptr;
    const rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, handle.get(), &answer, left_ms());
    const Metadata metadata(answer);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        topic_finding = rd_kafka_err2str(code);
        return;
    }
    for (int i = 0; i < metadata->topic_cnt; i++) {
        if (topic != metadata->topics[i].topic) continue;
        topic_finding = topic_words(metadata->topics[i]);
        topic_advice = advice_on_topic(metadata->topics[i].err);
        partitions = metadata->topics[i].partition_cnt;
        if (topic_finding.empty()) ask_leaders(metadata->topics[i]);
    }
}

// The address that a broker advertises may not be the one that we reached it by. Asking for offsets goes to the leader
// of each partition, and needs no more rights than writing does.
void Talk::ask_leaders(const struct rd_kafka_metadata_topic& found) {
    std::set<std::int32_t> asked;
    leader = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < found.partition_cnt && leader == RD_KAFKA_RESP_ERR_NO_ERROR && go_on(); i++) {
        if (!asked.insert(found.partitions[i].leader).second) continue;
        std::int64_t low = 0, high = 0;
        leader = rd_kafka_query_watermark_offsets(rk, topic.c_str(), found.partitions[i].id, &low, &high, left_ms());
    }
}

#if RD_KAFKA_VERSION >= 0x020300ff
void Talk::ask_rights() {
    const Queue answers(rd_kafka_queue_new(rk));
    const char* names[] = {topic.c_str()};
    rd_kafka_TopicCollection_t* topics = rd_kafka_TopicCollection_of_topic_names(names, 1);
    rd_kafka_AdminOptions_t* options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
    char said[256];
    const int limit_ms = std::min(left_ms(), kRightsMs);
    rd_kafka_AdminOptions_set_request_timeout(options, limit_ms, said, sizeof said);
    if (rd_kafka_error_t* error = rd_kafka_AdminOptions_set_include_authorized_operations(options, 1)) {
        rd_kafka_error_destroy(error);
    }
    rd_kafka_DescribeTopics(rk, topics, options, answers.get());
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_TopicCollection_destroy(topics);

    const EventPtr event(rd_kafka_queue_poll(answers.get(), limit_ms));
    const rd_kafka_DescribeTopics_result_t* result =
        event ? rd_kafka_event_DescribeTopics_result(event.get()) : nullptr;
    std::size_t count = 0;
    const rd_kafka_TopicDescription_t** found =
        result != nullptr ? rd_kafka_DescribeTopics_result_topics(result, &count) : nullptr;
    if (count == 0) {
        write_words = event ? rd_kafka_event_error_string(event.get()) : "the cluster did not answer in time";
        return;
    }
    if (const rd_kafka_error_t* error = rd_kafka_TopicDescription_error(found[0]);
        error != nullptr && rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        write_words = rd_kafka_error_string(error);
        return;
    }
    std::size_t operations = 0;
    const rd_kafka_AclOperation_t* allowed = rd_kafka_TopicDescription_authorized_operations(found[0], &operations);
    if (allowed == nullptr) {
        write_words = "the cluster does not tell";
        return;
    }
    const bool may = std::find(allowed, allowed + operations, RD_KAFKA_ACL_OPERATION_WRITE) != allowed + operations;
    write = may ? Write::yes : Write::no;
}
#else
void Talk::ask_rights() {
    write_words = "librdkafka " + std::string(rd_kafka_version_str()) + " cannot ask for rights";
}
#endif

// The error events of the client, while the questions are under way.
struct Troubles {
    explicit Troubles(std::vector<std::string> secrets) : notices(std::move(secrets)) {}

    Notices notices;
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;  // the one that explains most
    rd_kafka_resp_err_t refused = RD_KAFKA_RESP_ERR_NO_ERROR;  // the cluster will have no producer of ours
    bool final_one = false;                                    // waiting longer will not help
    Clock::time_point since{};

    void take(rd_kafka_event_t* event) {
        if (rd_kafka_event_type(event) != RD_KAFKA_EVENT_ERROR) return;
        rd_kafka_resp_err_t of = rd_kafka_event_error(event);
        const char* text = rd_kafka_event_error_string(event);
        notices.error(of, text != nullptr ? text : rd_kafka_err2str(of));
        if (of == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED || of == RD_KAFKA_RESP_ERR__FATAL ||
            of == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE) {
            refused = of;
        }
        if (of == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
            final_one = true;
        } else if (code != RD_KAFKA_RESP_ERR__AUTHENTICATION && code != RD_KAFKA_RESP_ERR__SSL) {
            code = of;
        }
        if (since == Clock::time_point{}) since = Clock::now();
    }
    bool hopeless() const {
        return (final_one || code == RD_KAFKA_RESP_ERR__AUTHENTICATION || code == RD_KAFKA_RESP_ERR__SSL) &&
               Clock::now() - since > kGrace;
    }
};

std::string advice(rd_kafka_resp_err_t code, std::string_view text) {
    const auto says = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
    if (code == RD_KAFKA_RESP_ERR__RESOLVE) return "Check the host names in bootstrap_servers and this server's DNS.";
    if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION || code == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED) {
        return "Check sasl_mechanism, and sasl_username and sasl_password in the owner's user mapping.";
    }
    if (code == RD_KAFKA_RESP_ERR__SSL) {
        return "Check ssl_ca_location or ssl_ca_pem, that the certificate names the host in bootstrap_servers, and that "
               "the port speaks TLS.";
    }
    if (says("refused")) return "Nothing listens there: check the port in bootstrap_servers, and that the broker runs.";
    if (says("Disconnected") || says("ApiVersion")) {
        return "The broker closed the connection: check that security_protocol is that of the port.";
    }
    return "No answer: check bootstrap_servers, and the network or firewall between this server and the brokers.";
}

std::string with_advice(const std::string& what, const std::string& then) {
    return what.empty() ? then : then.empty() ? what : what + ". " + then;
}

class Checks {
public:
    explicit Checks(const core::SinkOptions& options) : options_(options), troubles_(secrets_of(options)) {}
    std::vector<Check> run(milliseconds limit, bool (*cancelled)());

private:
    bool start(milliseconds limit);
    void wait(bool (*cancelled)());
    void drain();
    void judge_connection(bool tls, bool sasl);
    void judge_topic();
    void judge_write();
    void add(std::string name, bool ok, std::string detail) {
        checks_.push_back({std::move(name), ok, std::move(detail)});
    }

    const core::SinkOptions& options_;
    core::TopicTemplate template_;
    Troubles troubles_;
    std::shared_ptr<Talk> talk_;
    Queue events_;
    bool tls_ = false, sasl_ = false;
    std::vector<Check> checks_;
};

bool Checks::start(milliseconds limit) {
    std::string error, hint;
    if (!template_.parse(options_.topic, error, hint)) {
        add("options", false, error);
        return false;
    }
    talk_ = std::make_shared<Talk>();
    talk_->topic = template_.is_fixed() ? std::string(template_.text()) : std::string();
    talk_->until = Clock::now() + limit;
    try {
        Conf conf = make_conf(options_);
        const std::string protocol = property_of(conf.get(), "security.protocol");
        tls_ = protocol.find("ssl") != std::string::npos;
        sasl_ = protocol.find("sasl") != std::string::npos;
        rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
        char text[512] = "";
        const SignalsBlocked blocked;
        talk_->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), text, sizeof text);
        if (talk_->rk == nullptr) throw std::runtime_error(troubles_.notices.clean(text));
        [[maybe_unused]] rd_kafka_conf_t* taken = conf.release();
        rd_kafka_set_log_queue(talk_->rk, nullptr);
        try {
            std::thread([talk = talk_] { talk->ask(); }).detach();
        } catch (...) {
            rd_kafka_destroy(talk_->rk);
            throw;
        }
    } catch (const std::exception& failed) {
        add("options", false, failed.what());
        return false;
    }
    events_.reset(rd_kafka_queue_get_main(talk_->rk));
    return true;
}

void Checks::drain() {
    while (const EventPtr event{rd_kafka_queue_poll(events_.get(), 0)}) troubles_.take(event.get());
}

void Checks::wait(bool (*cancelled)()) {
    Clock::time_point answered{};
    for (;;) {
        bool asked_all = false;
        {
            std::unique_lock lock(talk_->mutex);
            talk_->changed.wait_for(lock, milliseconds(50), [&] { return talk_->finished; });
            asked_all = talk_->finished;
            if (asked_all && talk_->cluster != RD_KAFKA_RESP_ERR_NO_ERROR) break;
        }
        drain();
        const auto now = Clock::now();
        if (asked_all && answered == Clock::time_point{}) answered = now;
        if (asked_all) std::this_thread::sleep_for(milliseconds(10));
        if (asked_all && now - answered > kProducerIdPause) break;
        if (troubles_.hopeless() && !asked_all) {
            const std::lock_guard lock(talk_->mutex);
            if (talk_->cluster != RD_KAFKA_RESP_ERR_NO_ERROR) break;
        }
        if (now > talk_->until || (cancelled != nullptr && cancelled())) break;
    }
    drain();
}

void Checks::judge_connection(bool tls, bool sasl) {
    const std::string& text = troubles_.notices.text();
    if (talk_->cluster == RD_KAFKA_RESP_ERR_NO_ERROR) {
        add("reachable", true, std::to_string(talk_->brokers) + (talk_->brokers == 1 ? " broker" : " brokers"));
        if (tls) add("encryption", true, "");
        if (sasl) add("credentials", true, "");
        return;
    }
    const bool tls_failed = troubles_.code == RD_KAFKA_RESP_ERR__SSL;
    const bool sasl_failed = troubles_.code == RD_KAFKA_RESP_ERR__AUTHENTICATION;
    const std::string detail = with_advice(text, advice(troubles_.code, text));
    if (!tls_failed && !sasl_failed) return add("reachable", false, detail);
    add("reachable", true, "");
    if (tls_failed) return add("encryption", false, detail);
    if (tls) add("encryption", true, "");
    add("credentials", false, detail);
}

void Checks::judge_topic() {
    if (talk_->topic.empty()) {
        return add("topic", true, "Topics come from the template " + std::string(template_.text()) +
                                      " and are looked at when an event goes there.");
    }
    const std::string name = "topic " + talk_->topic;
    if (!talk_->topic_finding.empty()) {
        return add(name, false,
                   with_advice(talk_->topic_finding, talk_->topic_advice));
    }
    if (talk_->leader != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return add(name, false,
                   with_advice(troubles_.notices.text().empty() ? rd_kafka_err2str(talk_->leader)
                                                                : troubles_.notices.text(),
                               "The topic is there, but the broker that leads it is not reached at the address that it "
                               "advertises (advertised.listeners)."));
    }
    add(name, true, std::to_string(talk_->partitions) + (talk_->partitions == 1 ? " partition" : " partitions"));
}

void Checks::judge_write() {
    if (troubles_.refused != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return add("may write", false,
                   with_advice(troubles_.notices.text(),
                               "The cluster admits no idempotent producer: give the sink's user WRITE on the topic, and "
                               "IDEMPOTENT_WRITE on the cluster with brokers older than 3.0."));
    }
    if (talk_->topic.empty() || !talk_->topic_finding.empty()) return;
    switch (talk_->write) {
        case Talk::Write::yes: return add("may write", true, "");
        case Talk::Write::no:
            return add("may write", false, "Give the sink's user the right WRITE on the topic " + talk_->topic + ".");
        case Talk::Write::unasked:
            return add("may write", true, "Not refused, but not certain before the first event: " + talk_->write_words +
                                              ".");
    }
}

std::vector<Check> Checks::run(milliseconds limit, bool (*cancelled)()) {
    if (!start(limit)) return std::move(checks_);
    wait(cancelled);
    events_.reset();
    {
        // From here on the other thread is on its own: it ends at its time limit at the latest, and destroys the client.
        const std::lock_guard lock(talk_->mutex);
        const bool finished = talk_->finished;
        const bool connected = talk_->cluster == RD_KAFKA_RESP_ERR_NO_ERROR;
        judge_connection(tls_, sasl_);
        if (connected && finished) {
            judge_topic();
            judge_write();
        } else if (connected) {
            add("topic " + talk_->topic, false, "The cluster did not answer in time.");
        }
        talk_->given_up = true;
        talk_->changed.notify_all();
    }
    return std::move(checks_);
}

}  // namespace

}  // namespace kafka

std::vector<Check> test_kafka(const core::SinkOptions& options, std::chrono::milliseconds limit, bool (*cancelled)()) {
    return kafka::Checks(options).run(limit, cancelled);
}

}  // namespace outbox::sink
