#include "state/settings.hpp"

#include "core/trace.hpp"
#include "pg/postgres.hpp"

namespace outbox::settings {

bool publish = true;
int poll_interval_ms = 1000;
int retention_s = 7 * 24 * 3600;
int inbox_retention_s = 30 * 24 * 3600;
int replay_rate = 1000;
int max_event_size = 900 * 1000;
bool lock_keys = false;
static char none[] = "";
char *traceparent = none, *tracestate = none, *baggage = none;
char *instance = nullptr;
char *fault = nullptr;
double retry_scale = 1;

static bool check_instance(char **value, void **, GucSource)
{
    // It becomes part of an option of the foreign server (`home`), fields separated by '/'.
    for (const char *c = *value; *c != '\0'; c++) {
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c) == nullptr) {
            GUC_check_errdetail("Letters, digits, \".\", \"_\" and \"-\" are allowed.");
            return false;
        }
    }
    return true;
}

// A value that could not be a header is refused where it is set, so that no event can be wrong by it.
template <const char *(*Wrong)(std::string_view)>
static bool check_trace(char **value, void **, GucSource)
{
    const char *wrong = Wrong(*value);
    if (wrong != nullptr)
        GUC_check_errdetail("%s", wrong);
    return wrong == nullptr;
}

void define()
{
    DefineCustomBoolVariable("outbox.publish", "Relays send events to their sinks.",
                             "Off: events are written and wait; outbox.lag shows the state \"off\".", &publish, true,
                             PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.poll_interval", "How often an idle relay looks for events that nobody woke it for.",
                            "A backstop for COMMIT PREPARED and lost wake-ups.", &poll_interval_ms, 1000, 10, 3600 * 1000,
                            PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.retention", "How long an event is kept after every sink has published it.", nullptr,
                            &retention_s, 7 * 24 * 3600, 0, 10 * 365 * 24 * 3600, PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr,
                            nullptr);
    DefineCustomIntVariable("outbox.inbox_retention", "How long outbox.inbox remembers a claim; -1: for ever.",
                            "An event that comes again later than that is new to its consumer.", &inbox_retention_s, 30 * 24 * 3600, -1,
                            10 * 365 * 24 * 3600, PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.replay_rate", "Events a second that a replay sends to its sink, at most.", nullptr, &replay_rate, 1000, 1,
                            1000 * 1000, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("outbox.max_event_size", "Largest event that may be written, in bytes.",
                            "Payload, headers, key, types and topic together. The default and 4 kB for the envelope stay "
                            "below the default limits of librdkafka and Kafka.",
                            &max_event_size, 900 * 1000, 1000, 1000 * 1000 * 1000, PGC_SUSET, GUC_UNIT_BYTE, nullptr,
                            nullptr, nullptr);
    DefineCustomBoolVariable("outbox.lock_keys", "Writers of one key take turns from their first event to their commit.",
                             "A transaction-level advisory lock on the key, taken before the event gets its id.", &lock_keys,
                             false, PGC_USERSET, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("outbox.traceparent", "The header traceparent of the events that are written (W3C Trace Context).",
                               "An event whose own headers have that name keeps its own; empty: none.", &traceparent, "",
                               PGC_USERSET, 0, check_trace<core::wrong_traceparent>, nullptr, nullptr);
    DefineCustomStringVariable("outbox.tracestate", "The header tracestate of the events that are written (W3C Trace Context).",
                               "An event whose own headers have it, or a traceparent, keeps its own; empty: none.", &tracestate, "",
                               PGC_USERSET, 0, check_trace<core::wrong_tracestate>, nullptr, nullptr);
    DefineCustomStringVariable("outbox.baggage", "The header baggage of the events that are written (W3C Baggage).",
                               "An event whose own headers have that name keeps its own; empty: none.", &baggage, "",
                               PGC_USERSET, 0, check_trace<core::wrong_baggage>, nullptr, nullptr);
    DefineCustomStringVariable("outbox.instance", "A name for this installation.",
                               "A sink that was published under one name halts under another: how a physical copy is told "
                               "from a failover.",
                               &instance, "", PGC_SIGHUP, 0, check_instance, nullptr, nullptr);
#ifdef OUTBOX_FAULTS
    DefineCustomStringVariable("outbox.fault", "Fault points of a test build.", nullptr, &fault, "", PGC_SUSET, 0, nullptr,
                               nullptr, nullptr);
    DefineCustomRealVariable("outbox.retry_scale", "The pauses of refused events times this.", nullptr, &retry_scale, 1, 0, 1000, PGC_SIGHUP, 0,
                             nullptr, nullptr, nullptr);
#endif
    MarkGUCPrefixReserved("outbox");
}

}  // namespace outbox::settings
