"""A TCP proxy that misbehaves on command: what stands between a reader and its server in the tests.

It passes bytes on until it is told to :meth:`~FaultProxy.cut`, :meth:`~FaultProxy.stall`, :meth:`~FaultProxy.mute`,
:meth:`~FaultProxy.deafen`, :meth:`~FaultProxy.half_close`, :meth:`~FaultProxy.drip` or :meth:`~FaultProxy.flip`;
:meth:`~FaultProxy.after` does one of these at an exact byte of what the server sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.support.eventually import PATIENCE_S

_MOST_PENDING = 256 << 10


class FaultProxy:
    """Listens on a free port of ``127.0.0.1`` and connects to ``host:port`` for each connection that comes.

    A thread of its own does the work; the methods may be called from any other and return when what they say has
    happened. Usable as a context manager.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.from_server = 0
        """Bytes that were passed on from the server, on all connections."""
        self.accepted = 0
        """Connections that came, ever."""
        self.drip_pause = 0.0
        self.flip_mask = 0x01
        self._idle_s = math.inf
        self.idle_cuts = 0
        """Connections that :meth:`cut_idle` reset."""
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._muted = self._deafened = self._dripping = self._flipping = False
        self._left: int | None = None
        self._action: Callable[[], None] = lambda: None
        self._fired = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()  # neither muted nor deafened
        self._whole.set()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lead_to(self, host: str, port: int) -> None:
        """New connections go there; those that there are stay where they are."""
        self._target = (host, port)

    # -- faults

    def cut(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._call(self._cut)

    def cut_idle(self, seconds: float) -> None:
        """From now on reset each connection on which nothing came from one of its sides for so long, as balancers
        do. ``math.inf``: none any more."""
        self._idle_s = seconds
        self._call(lambda: self._cut_idle(seconds))

    def stall(self) -> None:
        """Let nothing through, in either direction, on any connection, until :meth:`pass_through`. Nothing is lost."""
        self._call(self._stall)

    def mute(self) -> None:
        """Let through what comes from the server, and nothing that clients send, until :meth:`pass_through`.

        A connection that comes meanwhile is made then: nobody can make one over a network that is cut in one direction.
        """
        self._call(self._mute)

    def deafen(self) -> None:
        """Let through what clients send, and nothing that comes from the server, until :meth:`pass_through`.

        A connection that comes meanwhile is made then.
        """
        self._call(self._deafen)

    def half_close(self) -> None:
        """End what comes from the server on all connections, as if it had said its last; the other direction stays
        open."""
        self._call(self._half_close)

    def drip(self) -> None:
        """Pass on what comes from the server one byte at a time, each in a packet of its own, until
        :meth:`pass_through`.

        :attr:`drip_pause` seconds lie between two bytes of a connection.
        """
        self._call(self._drip)

    def flip(self) -> None:
        """Change the next byte that comes from the server, on whatever connection, by the bits of :attr:`flip_mask`."""
        self._call(self._flip)

    def pass_through(self) -> None:
        """Behave again; connections that were stalled go on."""
        self._call(self._pass_through)

    def after(self, count: int, fault: Callable[[], None]) -> None:
        """Do ``fault``, one of the methods above, when ``count`` more bytes have come from the server: between that
        byte and the next."""
        own = {
            self.cut: self._cut,
            self.stall: self._stall,
            self.mute: self._mute,
            self.deafen: self._deafen,
            self.half_close: self._half_close,
            self.drip: self._drip,
            self.flip: self._flip,
        }[fault]

        def arm() -> None:
            self._left, self._action = count, own
            self._fired.clear()

        self._call(arm)

    def await_fault(self) -> None:
        """Wait until what :meth:`after` announced has happened. Raises ``TimeoutError``."""
        if not self._fired.wait(PATIENCE_S):
            raise TimeoutError(f"the server sent {self._left} bytes too few for the fault")

    # -- in the loop's thread

    def _cut(self) -> None:
        for link in list(self._links):
            link.reset()

    def _cut_idle(self, seconds: float) -> None:
        if self._idle_s != seconds or seconds == math.inf:
            return
        now = self._loop.time()
        for link in list(self._links):
            if now - min(link.heard.values()) > seconds:
                self.idle_cuts += 1
                link.reset()
        self._loop.call_later(seconds / 20, self._cut_idle, seconds)

    def _stall(self) -> None:
        self._mute()
        self._deafen()

    def _mute(self) -> None:
        self._muted = True
        self._whole.clear()
        for link in self._links:
            link.hold()

    def _deafen(self) -> None:
        self._deafened = True
        self._whole.clear()
        for link in self._links:
            link.hold()

    def _half_close(self) -> None:
        for link in list(self._links):
            link.half_close()

    def _drip(self) -> None:
        self._dripping = True

    def _flip(self) -> None:
        self._flipping = True

    def _damaged(self, data: bytes) -> bytes:
        """What is passed on instead of ``data``."""
        if not self._flipping:
            return data
        self._flipping = False
        return bytes([data[0] ^ self.flip_mask]) + data[1:]

    def _pass_through(self) -> None:
        self._muted = self._deafened = self._dripping = self._flipping = False
        self._whole.set()
        for link in list(self._links):
            link.go_on()

    def _share(self, wanted: int) -> int:
        """How many of ``wanted`` bytes may go in one piece now."""
        if self._deafened:
            return 0
        most = 1 if self._dripping else wanted
        return min(wanted, most) if self._left is None else min(wanted, most, self._left)

    def _passed(self, count: int) -> None:
        self.from_server += count
        if self._left is not None:
            self._left -= count
            if self._left == 0:
                self._left = None
                self._action()
                self._fired.set()

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Client(self), self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        connecting = [link.connecting for link in self._links]
        self._server.close()
        self._cut()
        self._whole.set()
        await asyncio.gather(*connecting, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_S)

    def _call(self, what: Callable[[], None]) -> None:
        async def called() -> None:
            what()

        self._do(called())


class _Link:
    """One connection of a client, and its counterpart to the server."""

    def __init__(self, proxy: FaultProxy, client: asyncio.Transport) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.Transport | None = None
        self._pending = bytearray()
        self._client_slow = self._server_ended = self._halved = self._turn_due = False
        self.heard = dict.fromkeys(("client", "server"), proxy._loop.time())
        client.pause_reading()
        self.connecting = proxy._loop.create_task(self._connect())

    async def _connect(self) -> None:
        await self._proxy._whole.wait()
        try:
            self._server, _ = await self._proxy._loop.create_connection(lambda: _Server(self), *self._proxy._target)
        except OSError:
            self.reset()
            return
        if self._client.is_closing():
            self._server.abort()
            return
        _undelayed(self._server)
        self.go_on()

    # -- faults

    def reset(self) -> None:
        for transport in (self._client, self._server):
            # One that is closing by itself has its socket taken away at any moment.
            if transport is not None and not transport.is_closing():
                # No lingering: closing sends a reset.
                _socket_of(transport).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                transport.abort()
        self._proxy._links.discard(self)

    def hold(self) -> None:
        """Stop reading where the proxy lets nothing through."""
        if self._proxy._muted:
            self._client.pause_reading()
        if self._proxy._deafened and self._server is not None:
            self._server.pause_reading()

    def half_close(self) -> None:
        self._halved = True
        if self._client.can_write_eof():
            self._client.write_eof()

    def go_on(self) -> None:
        if self._server is None:
            return
        if not self._proxy._muted:
            self._client.resume_reading()
        if not self._proxy._deafened:
            self._server.resume_reading()
            self.turn()

    # -- bytes

    def from_client(self, data: bytes) -> None:
        self.heard["client"] = self._proxy._loop.time()
        if self._server is not None:
            self._server.write(data)

    def from_server(self, data: bytes) -> None:
        self.heard["server"] = self._proxy._loop.time()
        self._pending += data
        self.turn()

    def client_slow(self, slow: bool) -> None:
        self._client_slow = slow
        self.turn()

    def turn(self) -> None:
        """Pass on what may be passed on."""
        self._turn_due = False
        while self._pending and not self._client_slow and not self._client.is_closing():
            count = self._proxy._share(len(self._pending))
            if count == 0:
                break
            if not self._halved:
                self._client.write(self._proxy._damaged(bytes(self._pending[:count])))
            del self._pending[:count]
            self._proxy._passed(count)
            if self._proxy._dripping and self._pending:
                if not self._turn_due:
                    self._turn_due = True
                    self._proxy._loop.call_later(self._proxy.drip_pause, self.turn)
                break
        if self._server is None or self._proxy._deafened:
            return
        if len(self._pending) > _MOST_PENDING:
            self._server.pause_reading()
        else:
            self._server.resume_reading()
        if self._server_ended and not self._pending and not self._client.is_closing():
            self._client.close()

    # -- ends

    def client_gone(self) -> None:
        self._proxy._links.discard(self)
        if self._server is not None:
            self._server.abort()

    def server_gone(self) -> None:
        self._server_ended = True
        self.turn()


class _Client(asyncio.Protocol):
    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        _undelayed(transport)
        self._link = _Link(self._proxy, transport)
        self._proxy._links.add(self._link)
        self._proxy.accepted += 1

    def data_received(self, data: bytes) -> None:
        self._link.from_client(data)

    def pause_writing(self) -> None:
        self._link.client_slow(True)

    def resume_writing(self) -> None:
        self._link.client_slow(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.client_gone()


class _Server(asyncio.Protocol):
    def __init__(self, link: _Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.from_server(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.server_gone()


def _socket_of(transport: asyncio.Transport) -> Any:
    return transport.get_extra_info("socket")


def _undelayed(transport: asyncio.Transport) -> None:
    with contextlib.suppress(OSError):
        _socket_of(transport).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
