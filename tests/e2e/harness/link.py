"""The way between relays and a broker, on loopback, which can be broken as a network breaks."""

import asyncio
import contextlib
import threading

from . import env

CHUNK = 16 * 1024


class Link:
    """Listens at `port` and passes everything to the port `target`. drop() breaks every connection; stall() and slow() last until clear()."""

    def __init__(self, target=None):
        self.target, self.port = target, env.free_port()
        self.delay, self.rate = 0.0, None  # seconds before a chunk is passed on; bytes a second
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self):
        self._thread.start()
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

    def close(self):
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

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
