"""HTTP/1.1 by hand, so that it can be broken, and HTTP/2 by h2, for the server of webhooks.py."""

import asyncio
import http.client
import socket
import struct
import time
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events


class Connection(asyncio.Protocol):
    """What both have in common. A request waits for its answer in a task of its own."""

    def __init__(self, server):
        self.server, self.transport, self.number = server, None, 0
        self._waiting = {}  # id of the request: request, task
        self.hanging = 0    # requests that will never be answered

    def connection_made(self, transport):
        self.transport = transport
        self.number = self.server.opened(self)

    def connection_lost(self, _):
        for request, task in self._waiting.values():
            task.cancel()
            self.server.answered(request, None)
        self._waiting.clear()
        self.server.closed(self)

    def reset(self):
        if (s := self.transport.get_extra_info("socket")) is not None:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def came(self, make, *where):
        """A request has come in full; `make` makes it from what only this class knows."""
        request = make(at=time.monotonic(), connection=self.number, certificate=self.transport.get_extra_info("peercert"))
        self._waiting[id(request)] = request, asyncio.ensure_future(self._serve(request, *where))

    async def _serve(self, request, *where):
        answer = self.server.decide(request)
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if answer.how == "never":
            self.hanging += 1
            await asyncio.Event().wait()
        if await self.give(answer, *where):
            self._waiting.pop(id(request))
            self.server.answered(request, answer.status)
            self.go_on()

    async def give(self, answer, *where):
        """True: it has been answered. False: it will not be, and the connection is lost."""
        raise NotImplementedError

    def go_on(self):
        pass


class Http1(Connection):
    def __init__(self, server, request):
        super().__init__(server)
        self._request, self._buffer = request, bytearray()

    def connection_made(self, transport):
        tls = transport.get_extra_info("ssl_object")
        if tls and tls.selected_alpn_protocol() == "h2":
            transport.set_protocol(other := Http2(self.server, self._request))
            other.connection_made(transport)
        else:
            super().connection_made(transport)

    def data_received(self, data):
        self._buffer += data
        if self._buffer[0] == 0x16:  # that would be TLS
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            self.transport.close()
        self.go_on()

    def go_on(self):
        if self._waiting or (end := self._buffer.find(b"\r\n\r\n")) < 0:
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = [tuple(line.split(": ", 1)) if ": " in line else (line.rstrip(":"), "") for line in lines]
        length = int(next((v for k, v in headers if k.lower() == "content-length"), 0))
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4:end + 4 + length])
        del self._buffer[:end + 4 + length]
        method, path, protocol = first.split(" ")
        self.came(lambda **more: self._request(method=method, path=path, protocol=protocol, headers=headers, body=body, **more))

    async def give(self, answer):
        body = b"" if answer.status == 204 else answer.body
        head = [f"HTTP/1.1 {answer.status} {http.client.responses.get(answer.status, 'Strange')}", *(f"{k}: {v}" for k, v in answer.headers.items())]
        if answer.status != 204:
            head.append(f"Content-Length: {len(body) + (100 if answer.how == 'cut' else 0)}")
        head = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n"
        if answer.how == "reset":
            self.reset()
        elif answer.how == "close" or answer.how == "half_close" and not self.transport.can_write_eof():
            self.transport.close()
        elif answer.how == "half_close":
            self.transport.write_eof()
        elif answer.how == "cut":
            self.transport.write(head + body)
            self.transport.close()
        elif answer.how == "trickle":
            self.transport.write(head)
            for n in range(len(body)):
                await asyncio.sleep(answer.pace)
                self.transport.write(body[n:n + 1])
            return True
        else:
            self.transport.write(head + body)
            if answer.how == "then_half_close":
                self.transport.write_eof() if self.transport.can_write_eof() else self.transport.close()
            return True
        return False


@dataclass
class Stream:
    headers: list
    body: bytearray = field(default_factory=bytearray)


class Http2(Connection):
    """Answers `whole` or `never`; anything else resets the connection."""

    def __init__(self, server, request):
        super().__init__(server)
        self._request, self._streams = request, {}
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="latin-1"))

    def connection_made(self, transport):
        super().connection_made(transport)
        self._h2.initiate_connection()
        self._flush()

    def _flush(self):
        self.transport.write(self._h2.data_to_send())

    def data_received(self, data):
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self._streams[event.stream_id] = Stream(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self._streams[event.stream_id].body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self._came(event.stream_id, self._streams.pop(event.stream_id))
        self._flush()

    def _came(self, number, stream):
        pseudo = {k: v for k, v in stream.headers if k.startswith(":")}
        self.came(lambda **more: self._request(
            method=pseudo[":method"], path=pseudo[":path"], protocol="HTTP/2", body=bytes(stream.body),
            headers=[(k, v) for k, v in stream.headers if not k.startswith(":")], **more), number)

    async def give(self, answer, number):
        if answer.how != "whole":
            self.reset()
            return False
        body = b"" if answer.status == 204 else answer.body
        headers = [(":status", str(answer.status)), *((k.lower(), str(v)) for k, v in answer.headers.items())]
        self._h2.send_headers(number, headers, end_stream=not body)
        if body:
            self._h2.send_data(number, body, end_stream=True)
        self._flush()
        return True
