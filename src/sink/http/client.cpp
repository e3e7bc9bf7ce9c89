#include "sink/http/client.hpp"

#include <curl/curl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "sink/signals.hpp"

namespace outbox::sink::http {

namespace {

int left_behind = 0;

void check(bool good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// 0 is at once; negative: never.
void set_timer(int timer, std::int64_t nanoseconds) {
    itimerspec time{};
    if (nanoseconds >= 0) {
        nanoseconds = std::max<std::int64_t>(nanoseconds, 1);
        time.it_value.tv_sec = static_cast<time_t>(nanoseconds / 1'000'000'000);
        time.it_value.tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000);
    }
    timerfd_settime(timer, 0, &time, nullptr);
}

}  // namespace

int lookups_left_behind() { return left_behind; }
void lookup_left_behind() { left_behind++; }

struct Callbacks {
    static int socket(CURL*, curl_socket_t fd, int what, void* user, void*) {
        auto* client = static_cast<Client*>(user);
        if (what == CURL_POLL_REMOVE) {
            epoll_ctl(client->epoll_, EPOLL_CTL_DEL, fd, nullptr);  // it may be closed, and gone from the set with that
            return 0;
        }
        epoll_event event{};
        event.data.fd = fd;
        if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
        if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
        if (epoll_ctl(client->epoll_, EPOLL_CTL_MOD, fd, &event) != 0) epoll_ctl(client->epoll_, EPOLL_CTL_ADD, fd, &event);
        return 0;
    }
    static int timer(CURLM*, long timeout_ms, void* user) {
        set_timer(static_cast<Client*>(user)->curl_timer_, timeout_ms < 0 ? -1 : std::int64_t{timeout_ms} * 1'000'000);
        return 0;
    }
};

Client::Client(int most_connections) {
    const SignalsBlocked blocked;
    try {
        epoll_ = epoll_create1(EPOLL_CLOEXEC);
        check(epoll_ >= 0, "no epoll set");
        for (int* timer : {&curl_timer_, &own_timer_}) {
            *timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
            check(*timer >= 0, "no timer");
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.fd = *timer;
            check(epoll_ctl(epoll_, EPOLL_CTL_ADD, *timer, &event) == 0, "no timer");
        }
        if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw std::runtime_error("libcurl cannot be used");
        multi_ = curl_multi_init();
        if (multi_ == nullptr) throw std::runtime_error("libcurl cannot be used");
        curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &Callbacks::socket);
        curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
        curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &Callbacks::timer);
        curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
        curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
        curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, static_cast<long>(most_connections));
        curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(most_connections));
    } catch (...) {
        for (const int fd : {epoll_, curl_timer_, own_timer_}) {
            if (fd >= 0) close(fd);
        }
        throw;
    }
}

Client::~Client() {
    const SignalsBlocked blocked;
    curl_multi_cleanup(multi_);
    for (const int fd : {epoll_, curl_timer_, own_timer_}) close(fd);
}

void Client::add(void* easy) {
    const SignalsBlocked blocked;
    curl_multi_add_handle(multi_, easy);
}

void Client::remove(void* easy) {
    const SignalsBlocked blocked;
    curl_multi_remove_handle(multi_, easy);
}

void Client::wake_at(Clock::time_point time) {
    set_timer(own_timer_, std::max<std::int64_t>(std::chrono::nanoseconds(time - Clock::now()).count(), 0));
}

void Client::run(const std::function<void(void* easy, int code)>& done) {
    const SignalsBlocked blocked;
    epoll_event events[64];
    int running = 0;
    for (int count = 64, rounds = 0; count == 64 && rounds < 8; rounds++) {
        count = epoll_wait(epoll_, events, 64, 0);
        for (int i = 0; i < count; i++) {
            const int fd = events[i].data.fd;
            if (fd == curl_timer_ || fd == own_timer_) {
                std::uint64_t times;
                [[maybe_unused]] const ssize_t ignored = read(fd, &times, sizeof times);
                if (fd == curl_timer_) curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
                continue;
            }
            int what = 0;
            if ((events[i].events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
            if ((events[i].events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
            if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_IN | CURL_CSELECT_ERR;
            curl_multi_socket_action(multi_, fd, what, &running);
        }
    }
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        if (message->msg == CURLMSG_DONE) done(message->easy_handle, message->data.result);
    }
}

}  // namespace outbox::sink::http
