// A web server that takes every request and answers 204 at once, so that senders are measured and not what they send to.
//
//   g++ -std=c++20 -O2 bench/programs/answer.cpp -o answer
//   answer PORT
//
// One thread, HTTP/1.1 with kept connections. GET is answered with the number of other requests so far.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

long taken;

// Where the request at the beginning of `in` ends; 0: it has not come in full yet.
std::size_t length_of(const std::string& in) {
    const std::size_t head = in.find("\r\n\r\n");
    if (head == std::string::npos) return 0;
    std::size_t body = 0;
    for (std::size_t line = 0; line < head; line = in.find("\r\n", line) + 2)
        if (strncasecmp(in.c_str() + line, "content-length:", 15) == 0) body = std::strtoul(in.c_str() + line + 15, nullptr, 10);
    return in.size() >= head + 4 + body ? head + 4 + body : 0;
}

// Answers what has come in full; false: the connection is over.
bool serve(int fd, std::string& in) {
    char piece[65536];
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got <= 0) return false;
    in.append(piece, static_cast<std::size_t>(got));
    std::string out;
    while (const std::size_t end = length_of(in)) {
        if (in.starts_with("GET ")) {
            const std::string count = std::to_string(taken);
            out += "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(count.size()) + "\r\n\r\n" + count;
        } else {
            ++taken;
            out += "HTTP/1.1 204 No Content\r\n\r\n";
        }
        in.erase(0, end);
    }
    return out.empty() || write(fd, out.data(), out.size()) == static_cast<ssize_t>(out.size());
}

}  // namespace

int main(int, char** argv) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[1])));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener, 512) != 0) {
        std::perror("answer");
        return 1;
    }
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{EPOLLIN, {.fd = listener}};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    std::map<int, std::string> open;  // what has come of the next request
    for (;;) {
        epoll_event events[64];
        const int n = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < n; ++i) {
            const int fd = events[i].data.fd;
            if (fd == listener) {
                const int made = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
                setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                event = {EPOLLIN, {.fd = made}};
                epoll_ctl(poll, EPOLL_CTL_ADD, made, &event);
                open[made];
            } else if (!serve(fd, open[fd])) {
                open.erase(fd);
                close(fd);
            }
        }
    }
}
