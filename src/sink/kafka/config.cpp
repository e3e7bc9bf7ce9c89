#include "sink/kafka/config.hpp"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "sink/kafka/notices.hpp"
#include "sink/kafka/properties.hpp"

namespace outbox::sink::kafka {

namespace {

[[noreturn]] void fail(std::string_view property, std::string_view what) {
    throw std::runtime_error("option \"" + std::string(property) + "\": " + std::string(what));
}

void set(rd_kafka_conf_t* conf, const std::string& name, const std::string& value,
         const std::vector<std::string>& secrets) {
    char error[512];
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error) != RD_KAFKA_CONF_OK) {
        fail(name, is_secret(name) ? "librdkafka refuses the value" : clean_text(error, secrets));
    }
}

// The password kept in a file of its own, so that it is in no catalog and no dump. Read for every new producer: it may
// be changed while the server runs.
std::string read_password(const std::string& path) {
    struct Close {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "re"));
    if (!file) fail(kPasswordFile, "the file cannot be opened");
    char bytes[4096];
    const std::size_t length = std::fread(bytes, 1, sizeof bytes, file.get());
    if (length == sizeof bytes || std::ferror(file.get()) != 0) fail(kPasswordFile, "the file cannot be read");
    std::string password(bytes, length);
    while (!password.empty() && (password.back() == '\n' || password.back() == '\r')) password.pop_back();
    if (password.empty()) fail(kPasswordFile, "the file is empty");
    return password;
}

}  // namespace

std::vector<std::string> secrets_of(const core::SinkOptions& options) {
    std::vector<std::string> secrets;
    for (const auto& [name, value] : options.properties) {
        // Short ones would blot out half of every text, and are none.
        if (is_secret(name) && value.size() >= 4) secrets.push_back(value);
    }
    return secrets;
}

std::string property_of(const rd_kafka_conf_s* conf, const char* name) {
    char value[512];
    std::size_t size = sizeof value;
    if (rd_kafka_conf_get(conf, name, value, &size) != RD_KAFKA_CONF_OK || size == 0) return {};
    return std::string(value, std::min(size, sizeof value) - 1);
}

std::string client_id(const core::SinkOptions& options) {
    std::string id = "outbox/" + options.database + "/" + options.sink + "/" + (options.lane < 0 ? "replay" : std::to_string(options.lane));
    // Control characters and quotes are legal in PostgreSQL's names and nowhere else.
    for (char& c : id) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= 0x20 || byte >= 0x7F || c == '"' || c == '\\') c = '_';
    }
    return id;
}

Conf make_conf(const core::SinkOptions& options) {
    const std::vector<std::string> secrets = secrets_of(options);
    Conf conf(rd_kafka_conf_new());

    // Defaults of ours that a sink may change.
    set(conf.get(), "client.id", client_id(options), secrets);
    set(conf.get(), "partitioner", "murmur2_random", secrets);  // as Java clients
    set(conf.get(), "allow.auto.create.topics", "false", secrets);
    set(conf.get(), "socket.nagle.disable", "true", secrets);
    set(conf.get(), "socket.keepalive.enable", "true", secrets);
    // The end of a batch waits for no linger (see flush()), so this only sizes the requests while a batch streams.
    // Measured with 10,000 events, 4 partitions, thousand events/s: without delay 640 at 0.5 ms, 890 at 2, 920 at 5; with
    // 5 ms round trip 300 at 0.5, 370 at 2, 280 at 5.
    set(conf.get(), "linger.ms", "2", secrets);
    // An unknown topic must fail by itself before the relay's patience ends (stall_timeout): a purge would take what
    // goes to other topics along. librdkafka looks once a second (measured: 500 fails at 1 s, 1000 at 2 s).
    const int patience_ms = options.stall_timeout_ms < 2000 ? 0 : options.stall_timeout_ms / 4;
    set(conf.get(), "topic.metadata.propagation.max.ms", std::to_string(patience_ms), secrets);
    // A broker that comes back is noticed within a second, not within ten.
    set(conf.get(), "reconnect.backoff.max.ms", "1000", secrets);

    for (const auto& [option, value] : options.properties) {
        const std::string name = property_name(option);
        if (name == kPasswordFile) {
            set(conf.get(), "sasl.password", read_password(value), secrets);
            continue;
        }
        // The validator has let none of these in. A server's options can come from elsewhere (a dump, an older
        // version), so ask again: some run code the moment they are set.
        if (std::string why = why_never(name, value); !why.empty()) fail(name, why);
        set(conf.get(), name, value, secrets);
    }
    if (property_of(conf.get(), "bootstrap.servers").empty()) {
        throw std::runtime_error("the sink has no option \"bootstrap_servers\"");
    }

    // What the guarantees stand on.
    set(conf.get(), "enable.idempotence", options.alone ? "false" : "true", secrets);
    set(conf.get(), "enable.gapless.guarantee", options.gapless && !options.alone ? "true" : "false", secrets);
    set(conf.get(), "acks", "all", secrets);
    set(conf.get(), "message.timeout.ms", "0", secrets);
    if (options.alone) {
        // After a refusal an idempotent producer waits for all that is on its way and for a new epoch, about a second (measured).
        set(conf.get(), "batch.num.messages", "1", secrets);
        set(conf.get(), "linger.ms", "0", secrets);
        set(conf.get(), "retries", "0", secrets);
    }
    set(conf.get(), "log.queue", "true", secrets);
    rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_ERROR);
    return conf;
}

}  // namespace outbox::sink::kafka
