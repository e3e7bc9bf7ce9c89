#include "sink/kafka/codes.hpp"

#include <librdkafka/rdkafka.h>

namespace outbox::sink::kafka {

// core/verdict.cpp writes these as numbers, since it knows no librdkafka; that each number has the name there that it
// has here is a unit test.
static_assert(RD_KAFKA_RESP_ERR__DESTROY == -197);
static_assert(RD_KAFKA_RESP_ERR__MSG_TIMED_OUT == -192);
static_assert(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION == -190);
static_assert(RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC == -188);
static_assert(RD_KAFKA_RESP_ERR__PURGE_QUEUE == -152);
static_assert(RD_KAFKA_RESP_ERR__PURGE_INFLIGHT == -151);
static_assert(RD_KAFKA_RESP_ERR__FATAL == -150);
static_assert(RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE == -148);
static_assert(RD_KAFKA_RESP_ERR_INVALID_MSG == 2);
static_assert(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE == 10);
static_assert(RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE == 18);
static_assert(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED == 29);
static_assert(RD_KAFKA_RESP_ERR_INVALID_RECORD == 87);

std::string words_of(std::int32_t code) {
    switch (code) {
        case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
            return "the topic does not exist, or the sink's user may not see it";
        case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION: return "the partition does not exist any more";
        case RD_KAFKA_RESP_ERR__PURGE_QUEUE: return "not sent in time";
        case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
        case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT: return "no acknowledgement in time";
        default: return rd_kafka_err2str(static_cast<rd_kafka_resp_err_t>(code));
    }
}

bool tells_nothing(std::int32_t code) {
    return code == RD_KAFKA_RESP_ERR__PURGE_QUEUE || code == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT ||
           code == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT || code == RD_KAFKA_RESP_ERR__TIMED_OUT ||
           code == RD_KAFKA_RESP_ERR__STATE;
}

}  // namespace outbox::sink::kafka
