#include "sink/kafka/properties.hpp"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/options.hpp"
#include "core/text.hpp"
#include "sink/kafka/handle.hpp"
#include "sink/kafka/notices.hpp"
#include "sink/sink.hpp"

namespace outbox::sink {

namespace kafka {

namespace {

enum class Kind : unsigned char {
    free,     // anyone who may create a sink
    ours,     // void a guarantee or have an option of ours in their place
    files,    // name files or addresses that the server's user would read: pg_read_server_files
    program,  // end in a shell command: pg_execute_server_program
    never,    // load code into the server's processes
};

struct Row {
    std::string_view name;  // canonical
    Kind kind;
    std::string_view harmless;  // ours: the values that change nothing, separated by `|`
    std::string_view hint;      // ours: why not, and what instead
};

// librdkafka 2.0.2 to 2.14. What is not here is refused: a property of a later version must be looked at first.
constexpr Row kTable[] = {
    // The connection.
    {"bootstrap.servers", Kind::free, {}, {}},
    {"client.id", Kind::free, {}, {}},
    {"client.rack", Kind::free, {}, {}},
    {"client.dns.lookup", Kind::free, {}, {}},
    {"broker.address.ttl", Kind::free, {}, {}},
    {"broker.address.family", Kind::free, {}, {}},
    {"socket.timeout.ms", Kind::free, {}, {}},
    {"socket.blocking.max.ms", Kind::free, {}, {}},
    {"socket.send.buffer.bytes", Kind::free, {}, {}},
    {"socket.receive.buffer.bytes", Kind::free, {}, {}},
    {"socket.keepalive.enable", Kind::free, {}, {}},
    {"socket.nagle.disable", Kind::free, {}, {}},
    {"socket.max.fails", Kind::free, {}, {}},
    {"socket.connection.setup.timeout.ms", Kind::free, {}, {}},
    {"connections.max.idle.ms", Kind::free, {}, {}},
    {"reconnect.backoff.jitter.ms", Kind::free, {}, {}},
    {"reconnect.backoff.ms", Kind::free, {}, {}},
    {"reconnect.backoff.max.ms", Kind::free, {}, {}},
    {"receive.message.max.bytes", Kind::free, {}, {}},
    {"log.connection.close", Kind::free, {}, {}},
    {"log.thread.name", Kind::free, {}, {}},
    {"enable.random.seed", Kind::free, {}, {}},
    {"statistics.interval.ms", Kind::free, {}, {}},
    {"enable.metrics.push", Kind::free, {}, {}},
    {"api.version.request", Kind::ours, "true|t|1",
     "Without it librdkafka cannot know whether a broker takes idempotent producers and headers."},
    {"api.version.request.timeout.ms", Kind::free, {}, {}},
    {"api.version.fallback.ms", Kind::free, {}, {}},
    {"broker.version.fallback", Kind::free, {}, {}},

    // Topics.
    {"metadata.recovery.strategy", Kind::free, {}, {}},
    {"metadata.recovery.rebootstrap.trigger.ms", Kind::free, {}, {}},
    {"metadata.max.age.ms", Kind::free, {}, {}},
    {"topic.metadata.refresh.interval.ms", Kind::free, {}, {}},
    {"topic.metadata.refresh.fast.interval.ms", Kind::free, {}, {}},
    {"topic.metadata.refresh.fast.cnt", Kind::free, {}, {}},
    {"topic.metadata.refresh.sparse", Kind::free, {}, {}},
    {"topic.metadata.propagation.max.ms", Kind::free, {}, {}},
    {"topic.blacklist", Kind::ours, {}, "Use the sink's option events to leave events out."},
    {"allow.auto.create.topics", Kind::free, {}, {}},
    {"partitioner", Kind::ours,
     "murmur2_random|murmur2|consistent_random|consistent|fnv1a|fnv1a_random",
     "A key's events stay in order only while they go to one partition; \"random\" scatters them."},
    {"sticky.partitioning.linger.ms", Kind::free, {}, {}},

    // Sending.
    {"message.max.bytes", Kind::free, {}, {}},
    {"message.copy.max.bytes", Kind::free, {}, {}},
    {"queue.buffering.max.messages", Kind::free, {}, {}},
    {"queue.buffering.max.kbytes", Kind::free, {}, {}},
    {"queue.buffering.backpressure.threshold", Kind::free, {}, {}},
    {"linger.ms", Kind::free, {}, {}},
    {"batch.num.messages", Kind::free, {}, {}},
    {"batch.size", Kind::free, {}, {}},
    {"compression.type", Kind::free, {}, {}},
    {"compression.level", Kind::free, {}, {}},
    {"request.timeout.ms", Kind::free, {}, {}},
    {"retry.backoff.ms", Kind::free, {}, {}},
    {"retry.backoff.max.ms", Kind::free, {}, {}},
    {"produce.offset.report", Kind::free, {}, {}},
    {"acks", Kind::ours, "all|-1", "An event counts as published when all in-sync replicas have it."},
    {"max.in.flight.requests.per.connection", Kind::ours, "1|2|3|4|5",
     "Kafka keeps the order of at most 5 requests in flight."},
    {"enable.idempotence", Kind::ours, "true|t|1", "Without it a retry repeats events and changes their order."},
    {"enable.gapless.guarantee", Kind::ours, "true|t|1",
     "Without it later events of a key are published although an earlier one was refused."},
    {"retries", Kind::ours, {}, "The relay decides how long to try: see the sink's options delivery_timeout and "
                                "stall_timeout."},
    {"message.timeout.ms", Kind::ours, "0", "Use the sink's option delivery_timeout."},
    {"queuing.strategy", Kind::ours, "fifo", "Events leave in their order."},
    {"delivery.report.only.error", Kind::ours, "false|f|0", "Without reports nothing would ever count as published."},
    {"transactional.id", Kind::ours, {}, "The relay's producers are not transactional."},
    {"transaction.timeout.ms", Kind::ours, {}, "The relay's producers are not transactional."},

    // TLS and SASL. Secrets are told by their names, see is_secret().
    {"security.protocol", Kind::free, {}, {}},
    {"ssl.cipher.suites", Kind::free, {}, {}},
    {"ssl.curves.list", Kind::free, {}, {}},
    {"ssl.sigalgs.list", Kind::free, {}, {}},
    {"ssl.key.location", Kind::files, {}, {}},
    {"ssl.key.password", Kind::free, {}, {}},
    {"ssl.key.pem", Kind::free, {}, {}},
    {"ssl.certificate.location", Kind::files, {}, {}},
    {"ssl.certificate.pem", Kind::free, {}, {}},
    {"ssl.ca.location", Kind::files, {}, {}},
    {"ssl.ca.pem", Kind::free, {}, {}},
    {"ssl.crl.location", Kind::files, {}, {}},
    {"ssl.keystore.location", Kind::files, {}, {}},
    {"ssl.keystore.password", Kind::free, {}, {}},
    {"https.ca.location", Kind::files, {}, {}},
    {"https.ca.pem", Kind::free, {}, {}},
    {"enable.ssl.certificate.verification", Kind::free, {}, {}},
    {"ssl.endpoint.identification.algorithm", Kind::free, {}, {}},
    {"sasl.mechanism", Kind::free, {}, {}},
    {"sasl.username", Kind::free, {}, {}},
    {"sasl.password", Kind::free, {}, {}},
    {kPasswordFile, Kind::files, {}, {}},
    {"sasl.kerberos.service.name", Kind::free, {}, {}},
    {"sasl.kerberos.min.time.before.relogin", Kind::free, {}, {}},
    {"sasl.kerberos.kinit.cmd", Kind::program, {}, {}},
    // The default kinit.cmd puts these two into its shell command, the first without quotes.
    {"sasl.kerberos.principal", Kind::program, {}, {}},
    {"sasl.kerberos.keytab", Kind::program, {}, {}},
    {"sasl.oauthbearer.config", Kind::free, {}, {}},
    {"enable.sasl.oauthbearer.unsecure.jwt", Kind::free, {}, {}},
    {"sasl.oauthbearer.method", Kind::free, {}, {}},
    {"sasl.oauthbearer.client.id", Kind::free, {}, {}},
    {"sasl.oauthbearer.client.secret", Kind::free, {}, {}},
    {"sasl.oauthbearer.scope", Kind::free, {}, {}},
    {"sasl.oauthbearer.extensions", Kind::free, {}, {}},
    {"sasl.oauthbearer.grant.type", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.algorithm", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.private.key.passphrase", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.private.key.pem", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.aud", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.exp.seconds", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.iss", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.jti.include", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.nbf.seconds", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.claim.sub", Kind::free, {}, {}},
    {"sasl.oauthbearer.assertion.private.key.file", Kind::files, {}, {}},
    {"sasl.oauthbearer.assertion.file", Kind::files, {}, {}},
    {"sasl.oauthbearer.assertion.jwt.template.file", Kind::files, {}, {}},
    {"sasl.oauthbearer.token.endpoint.url", Kind::files, {}, {}},
    {"sasl.oauthbearer.metadata.authentication.type", Kind::files, {}, {}},  // asks an address of its own
    {"plugin.library.paths", Kind::never, {}, {}},
    {"ssl.engine.location", Kind::never, {}, {}},
    {"ssl.engine.id", Kind::never, {}, {}},
    {"ssl.providers", Kind::never, {}, {}},

    // What the sink itself needs.
    {"log.queue", Kind::ours, "true|t|1", "The sink takes librdkafka's log lines itself."},
    {"log_level", Kind::ours, {}, "The sink takes librdkafka's log lines itself."},
    {"debug", Kind::ours, {}, "The sink keeps no log of librdkafka's; see last_error in outbox.relays."},
    {"enabled_events", Kind::ours, {}, "The sink decides which events it takes."},
    {"internal.termination.signal", Kind::ours, {}, "Signals in the server's processes are PostgreSQL's."},
    {"test.mock.num.brokers", Kind::ours, {}, "It would publish to a cluster that exists only in the relay's memory."},
    {"test.mock.broker.rtt", Kind::ours, {}, "It would publish to a cluster that exists only in the relay's memory."},
};

// Properties of consumers: a producer has no use for them.
constexpr std::string_view kConsumer[] = {
    "group.id", "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor",
    "partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms", "coordinator.query.interval.ms",
    "max.poll.interval.ms", "enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms",
    "enable.auto.offset.store", "auto.offset.reset", "queued.min.messages", "queued.max.messages.kbytes",
    "fetch.wait.max.ms", "fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes",
    "fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "offset.store.method", "offset.store.path",
    "offset.store.sync.interval.ms", "consume.callback.max.messages", "isolation.level", "enable.partition.eof",
    "check.crcs",
};

// Pointers and functions, which no text can be.
constexpr std::string_view kCode[] = {
    "error_cb", "throttle_cb", "stats_cb", "log_cb", "background_event_cb", "socket_cb", "connect_cb",
    "closesocket_cb", "open_cb", "resolve_cb", "dr_cb", "dr_msg_cb", "consume_cb", "rebalance_cb", "offset_commit_cb",
    "partitioner_cb", "msg_order_cmp", "oauthbearer_token_refresh_cb", "ssl.certificate.verify_cb",
    "ssl_engine_callback_data", "ssl_key", "ssl_certificate", "ssl_ca", "opaque", "default_topic_conf",
    "interceptors",
};

struct Alias {
    std::string_view name, canonical;
};
constexpr Alias kAliases[] = {
    {"metadata.broker.list", "bootstrap.servers"},
    {"max.in.flight", "max.in.flight.requests.per.connection"},
    {"sasl.mechanisms", "sasl.mechanism"},
    {"queue.buffering.max.ms", "linger.ms"},
    {"message.send.max.retries", "retries"},
    {"compression.codec", "compression.type"},
    {"request.required.acks", "acks"},
    {"delivery.timeout.ms", "message.timeout.ms"},
    {"sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"},
    {"sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret"},
};

constexpr Row kConsumerRow{{}, Kind::ours, {}, "It is a property of consumers, and a sink only publishes."};
constexpr Row kCodeRow{{}, Kind::ours, {}, "It stands for code or memory of the program and cannot be set as text."};

const Row* find(std::string_view canonical) {
    for (const Row& row : kTable) {
        if (row.name == canonical) return &row;
    }
    if (std::find(std::begin(kConsumer), std::end(kConsumer), canonical) != std::end(kConsumer)) return &kConsumerRow;
    if (std::find(std::begin(kCode), std::end(kCode), canonical) != std::end(kCode)) return &kCodeRow;
    return nullptr;
}

bool is_one_of(std::string_view value, std::string_view list) {
    while (!list.empty()) {
        const std::size_t bar = std::min(list.find('|'), list.size());
        if (value == list.substr(0, bar)) return true;
        list.remove_prefix(std::min(bar + 1, list.size()));
    }
    return false;
}

PropertyClass class_of(const Row& row, std::string_view value) {
    switch (row.kind) {
        case Kind::free: return PropertyClass::free;
        case Kind::ours: return is_one_of(value, row.harmless) ? PropertyClass::free : PropertyClass::ours;
        case Kind::files: return PropertyClass::restricted_files;
        case Kind::program: return PropertyClass::restricted_program;
        case Kind::never: return PropertyClass::restricted_nobody;
    }
    return PropertyClass::restricted_nobody;
}

// Asking for a value sets nothing, so it is safe for any name.
bool librdkafka_knows(const std::string& name) {
    const Conf conf(rd_kafka_conf_new());
    std::size_t size = 0;
    return rd_kafka_conf_get(conf.get(), name.c_str(), nullptr, &size) != RD_KAFKA_CONF_UNKNOWN;
}

// Insertions, deletions and replacements between two names.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); j++) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); i++) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); j++) {
            const std::size_t above = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
            diagonal = above;
        }
    }
    return row[b.size()];
}

std::string near_name(std::string_view name) {
    std::string_view nearest;
    std::size_t best = name.size() > 60 ? 0 : std::min<std::size_t>(4, name.size() / 3 + 1);
    for (const Row& row : kTable) {
        if (row.kind == Kind::never) continue;
        const std::size_t away = distance(name, row.name);
        if (away < best) {
            best = away;
            nearest = row.name;
        }
    }
    for (const std::string_view own : core::own_options()) {
        const std::size_t away = distance(name, core::canonical_property(own));
        if (away < best) {
            best = away;
            nearest = own;
        }
    }
    if (nearest.empty()) return {};
    std::string option(nearest);
    std::replace(option.begin(), option.end(), '.', '_');
    return "Perhaps you meant the option \"" + option + "\".";
}

void refuse_unlisted(PropertyVerdict& verdict) {
    if (librdkafka_knows(verdict.property)) {
        verdict.what = PropertyClass::restricted_nobody;
        verdict.hint = "This version of outbox does not know what the property does, so nobody may set it.";
        return;
    }
    verdict.what = PropertyClass::unknown;
    verdict.error = "unknown property " + core::quote_for_message(verdict.property);
    verdict.hint = near_name(verdict.property);
}

void try_value(PropertyVerdict& verdict, std::string_view value) {
    if (verdict.property == kPasswordFile) {
        if (!value.starts_with('/')) verdict.error = "the path of the file must be absolute";
        return;
    }
    const Conf conf(rd_kafka_conf_new());
    char said[512] = "";
    switch (rd_kafka_conf_set(conf.get(), verdict.property.c_str(), std::string(value).c_str(), said, sizeof said)) {
        case RD_KAFKA_CONF_OK: return;
        case RD_KAFKA_CONF_UNKNOWN:
            verdict.what = PropertyClass::unknown;
            verdict.error = "librdkafka " + std::string(rd_kafka_version_str()) + " does not know the property \"" +
                            verdict.property + "\"";
            return;
        case RD_KAFKA_CONF_INVALID: break;
    }
    verdict.error = verdict.secret ? "librdkafka refuses the value" : clean_text(said, {std::string(value)});
}

}  // namespace

std::string property_name(std::string_view option) {
    std::string name = core::canonical_property(option);
    for (const Alias& alias : kAliases) {
        if (name == alias.name) return std::string(alias.canonical);
    }
    return name;
}

bool is_secret(std::string_view property) {
    const std::string name = core::canonical_property(property);
    if (name == kPasswordFile) return false;
    // A file with a secret in it is not the secret.
    if (name.ends_with(".location") || name.ends_with(".file")) return false;
    for (const std::string_view part :
         {"password", "secret", "passphrase", "key.pem", "private.key", "oauthbearer.config"}) {
        if (name.find(part) != std::string::npos) return true;
    }
    return false;
}

std::string why_never(std::string_view property, std::string_view value) {
    const Row* row = find(property_name(property));
    if (row == nullptr) return "not a property that a sink may have";
    switch (class_of(*row, value)) {
        case PropertyClass::ours: return std::string(row->hint);
        case PropertyClass::restricted_nobody: return "it would load code into the server's processes";
        default: return {};
    }
}

}  // namespace kafka

PropertyVerdict check_property(std::string_view option, std::string_view value, bool allow_program, bool allow_files) {
    PropertyVerdict verdict;
    verdict.property = kafka::property_name(option);
    verdict.secret = kafka::is_secret(verdict.property);
    const kafka::Row* row = kafka::find(verdict.property);
    if (row == nullptr) {
        kafka::refuse_unlisted(verdict);
        return verdict;
    }
    verdict.what = kafka::class_of(*row, value);
    switch (verdict.what) {
        case PropertyClass::ours: verdict.hint = row->hint; return verdict;
        case PropertyClass::restricted_nobody:
            verdict.hint = "It would load code into the server's processes.";
            return verdict;
        case PropertyClass::restricted_program:
            verdict.hint = "It becomes part of a shell command: only members of pg_execute_server_program may set it.";
            if (!allow_program) return verdict;
            break;
        case PropertyClass::restricted_files:
            verdict.hint = "It names a file or an address that the server reads: only members of "
                           "pg_read_server_files may set it.";
            if (!allow_files) return verdict;
            break;
        case PropertyClass::free:
        case PropertyClass::unknown: break;
    }
    kafka::try_value(verdict, value);
    return verdict;
}

}  // namespace outbox::sink
