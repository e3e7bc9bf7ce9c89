// Where a sink's events go: with the aggregate_id that is their ordering key. For Kafka a topic each; an HTTP sink has one
// endpoint for all, its host.
#pragma once

#include <string>
#include <string_view>

#include "core/options.hpp"
#include "core/topic.hpp"

namespace outbox::core {

class Route {
public:
    // Of an illegal topic template, which the sink itself will complain of, the default is taken.
    explicit Route(const SinkOptions& options) : one_(options.kind == Kind::http), text_(one_ ? options.http.host : options.topic) {
        std::string error, hint;
        good_ = one_ || topics_.parse(text_, error, hint);
    }

    // The view lives as long as the event, the route and `out`.
    std::string_view to(const Event& event, Buffer& out) const {
        if (one_) return text_;
        std::string_view topic;
        topics_.expand(event, out, topic);
        return topic;
    }

    bool good() const { return good_; }
    const std::string& text() const { return text_; }  // two routes with the same text are the same

private:
    bool one_;
    std::string text_;
    TopicTemplate topics_;
    bool good_ = true;
};

}  // namespace outbox::core
