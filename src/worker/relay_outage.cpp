// A relay while its sink is down: back-off and probe, no transaction open, nothing counted, nothing parked.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "pg/session.hpp"
#include "pg/wait.hpp"
#include "worker/relay.hpp"
#include "worker/voice.hpp"

namespace outbox::worker {

using shared::State;
using std::chrono::milliseconds;

void Relay::outage(const Publisher &publisher)
{
    const std::string &why = publisher.error();
    if (publisher.gone()) {
        gone_ = why;
        return;
    }
    char line[400];
    if (!down_) {
        snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d is down: %s", config_.name.c_str(), lane_.lane, why.c_str());
        voice().down(line);
        counts_.count(counts_.outages);
    }
    down_ = true;
    error_ = why;
    shared::set_error(why.c_str());
    enter(State::backing_off);
    back_off_until_ = std::max(Clock::now() + milliseconds(backoff_.next_ms(random_())), publisher.not_before());
}

// A batch is out and nothing comes back. The sink is not down before delivery_timeout, but whoever looks should see what it says; and
// with other options, or when nobody wants this relay any more, there is nothing to wait for.
bool Relay::worth_waiting(const std::string &complaint)
{
    if (complaint.empty())
        return true;
    if (complaint != error_) {
        error_ = complaint;
        shared::set_error(error_.c_str());
    }
    return shared::still_wanted() && shared::generation() == generation_;
}

// Its events stay pending. Nobody asks it again, no other lane and no relay after a restart, before its url changes or somebody resumes it.
void Relay::disable()
{
    pg::Transaction transaction;
    if (extension_usable()) {
        char line[500];
        snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d is disabled: %s", config_.name.c_str(), lane_.lane, gone_.c_str());
        pg::log(pg::Level::warning, line);
        store::disable(lane_.sink_id, config_.options.http.url, gone_);
    }
    transaction.commit();
    gone_.clear();
    down_ = false;
    loaded_ = false;
    shared::sinks_changed(pg::my_database());
}

// No transaction is held: the first pending event, with those that belong in one request with it, stays in the producer with no time
// limit of ours and is recorded when its report comes.
Relay::Next Relay::probe_pass()
{
    enter(State::backing_off);
    if (!publisher_->probing()) {
        publisher_->make_ready();
        pg::Transaction transaction;
        if (!extension_usable())
            return Next::wait;
        store::Batch &batch = *batch_;
        log_.read(batch, progress_, cap_, several_a_request() ? limits() : store::Limits{1}, ahead_);
        if (batch.events.empty()) {
            skip_ahead(batch);
            transaction.commit();
            if (batch.more)
                return Next::again;
            up_again();  // the probe that ended when the options were read again was the last event
            return Next::again;
        }
        if (parking_.gated(publisher_->destination(batch.events[0]), batch.events[0]))
            return park_first(batch, transaction);
        arrange(batch);
        if (config_.options.http.batch > 1 && !fixed_[0]) {
            if (store::claim(lane_, progress_, cap_.has_value()))
                fix(batch, 1);
            else
                loaded_ = false;
            transaction.commit();
            return loaded_ ? Next::again : Next::wait;
        }
        make_durable(batch);
        publisher_->probe(batch.events, first_request(batch));
        transaction.commit();
    }
    switch (publisher_->probe_result()) {
    case Publisher::Probe::waiting:
        if (!publisher_->error().empty() && publisher_->error() != error_) {
            error_ = publisher_->error();
            shared::set_error(error_.c_str());
        }
        return Next::wait;
    case Publisher::Probe::failed:
        take_probe_fates();
        remember_ahead(*batch_, 0);
        outage(*publisher_);
        return gone_.empty() ? Next::wait : Next::again;
    case Publisher::Probe::suspect: break;
    case Publisher::Probe::taken: record_probe();
    }
    up_again();
    return Next::again;
}

// It waits behind a parked one whether the sink is there or not, and must not go ahead of it as a probe.
Relay::Next Relay::park_first(const store::Batch &batch, pg::Transaction &transaction)
{
    if (!store::claim(lane_, progress_, cap_.has_value())) {
        loaded_ = false;
        return Next::wait;
    }
    fates_.assign(batch.events.size(), Fate::open);
    fates_[0] = Fate::gated;
    finish_batch(batch, Publisher::Result::outage);
    transaction.commit();
    return Next::again;
}

void Relay::up_again()
{
    down_ = false;
    backoff_.reset();
    char line[200];
    snprintf(line, sizeof line, "outbox: sink \"%s\" lane %d is up again", config_.name.c_str(), lane_.lane);
    voice().up(line);
    clear_error();
}

// Parked events can find the sink down while nothing else is to be sent.
void Relay::show_outage_of_parked()
{
    if (parking_.outage() == parked_error_)
        return;
    if (error_ == parked_error_)
        clear_error();
    if (parked_error_.empty() && !down_)
        counts_.count(counts_.outages);
    parked_error_ = parking_.outage();
    if (!parked_error_.empty() && error_.empty()) {
        error_ = parked_error_;
        shared::set_error(error_.c_str());
    }
}

// Gives the probe a moment to be acknowledged before its producer is given up.
void Relay::settle_probe(milliseconds grace)
{
    if (publisher_ == nullptr || !publisher_->probing())
        return;
    pg::HoldInterrupts hold;
    if (publisher_->end_probe(grace) == Publisher::Probe::taken) {
        record_probe();
        return;
    }
    take_probe_fates();
    remember_ahead(*batch_, 0);
}

void Relay::take_probe_fates()
{
    fates_ = publisher_->probe_fates();
    count_delivered(*batch_);
}

// The sink is there. What it refused for its own fault was attempted, too, and is parked.
void Relay::record_probe()
{
    pg::HoldInterrupts hold;
    take_probe_fates();
    try {
        pg::Transaction transaction;
        if (extension_usable() && store::claim(lane_, progress_, cap_.has_value())) {
            finish_batch(*batch_, Publisher::Result::outage);
        } else {
            loaded_ = false;
            remember_ahead(*batch_, 0);
        }
        transaction.commit();
    } catch (...) {
        remember_ahead(*batch_, 0);  // a record that keeps failing must not send it again and again
        throw;
    }
}

}  // namespace outbox::worker
