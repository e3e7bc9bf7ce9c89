"""The way between relays and a broker, on loopback, which can be broken as a network breaks."""

import asyncio
import contextlib

from . import env
from .looped import Looped

CHUNK = 16 * 1024


class Link(Looped):
    """Listens at `port` and passes everything to the port `target`. drop() breaks every connection; stall() and slow() last until clear()."""

    def __init__(self, target=None):
        super().__init__()
        self.target, self.port = target, env.free_port()
        self.delay, self.rate = 0.0, None  # seconds before a chunk is passed on; bytes a second
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections = set()

    def start(self):
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", self.port))
        return self

    def drop(self):
        """Connections are reset, with whatever was under way."""
        self._loop.call_soon_threadsafe(self._drop)

    def stall(self):
        """Connections stay open and nothing gets through."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def slow(self, delay, rate):
        self.delay, self.rate = delay, rate

    def clear(self):
        self.delay, self.rate = 0.0, None
        self._loop.call_soon_threadsafe(self._flowing.set)

    def stop(self):
        self._run(self._stop())

    async def _stop(self):
        self._server.close()
        self._drop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self):
        for writer in list(self._connections):
            writer.transport.abort()

    async def _accept(self, reader, writer):
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._connections |= {writer, back}
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        finally:
            self._connections -= {writer, back}
            writer.transport.abort()
            back.transport.abort()

    async def _pass(self, reader, writer):
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self._flowing.wait()
                if self.delay or self.rate:
                    await asyncio.sleep(self.delay + (len(chunk) / self.rate if self.rate else 0))
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
