"""A TCP proxy before a database server that cuts a connection at a chosen message of a COMMIT.

It knows as much of PostgreSQL's and MySQL's protocols as it takes to find where a message ends. The exchange of a
COMMIT is the request and each message of its answer; a *place* in it counts halves of messages that still pass.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

from tests.support.eventually import PATIENCE_S

__all__ = ["PLACES", "CommitProxy"]

PLACES: Final = {"postgres": 7, "mariadb": 5}
"""How many places there are: PostgreSQL answers with CommandComplete and ReadyForQuery, MySQL's protocol with OK."""
_CHUNK: Final = 1 << 16


class CommitProxy:
    """Listens on ``port`` of loopback, and connects each connection to ``to``, a port of loopback."""

    def __init__(self, dialect: str, to: int) -> None:
        self.dialect, self.to = dialect, to
        self.armed: int | None = None
        self.passing = 0
        self.before_cut: Callable[[], None] = lambda: None
        self.holds = False
        self.fired = threading.Event()
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="commit proxy", daemon=True).start()

    def arm(self, place: int, before_cut: Callable[[], None] = lambda: None, *, passing: int = 0) -> None:
        """Cut the next COMMIT's connection at ``place``, once ``before_cut`` was called. ``passing``: how many others
        pass before."""
        self.fired.clear()
        self.before_cut, self.passing, self.armed = before_cut, passing, place

    def hold(self) -> None:
        """Cut the client of the next COMMIT; the server gets the COMMIT at :meth:`release`."""
        self.released.clear()
        self.holds = True
        self.arm(0)

    def release(self) -> None:
        """Let the server have the COMMIT that is held."""
        self.released.set()

    def await_fired(self) -> None:
        """Wait until the connection was cut."""
        assert self.fired.wait(PATIENCE_S), f"no COMMIT came: {self.armed}"

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                _Link(self, self._listener.accept()[0])


class _Link:
    """One connection, with a thread for each direction."""

    def __init__(self, proxy: CommitProxy, client: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, socket.socket()
        self._left: int | None = None  # halves of messages that still pass; None: this is no exchange to be cut
        self._answered_last = threading.Event()
        self._once = threading.Lock()  # a server that is killed answers something meanwhile, in the other thread
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._server.connect(("127.0.0.1", self._proxy.to))
        except OSError:
            self._cut()
            return
        for side in (self._client, self._server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._answers, daemon=True).start()
        self._pump(self._client, self._asked)

    def _answers(self) -> None:
        self._pump(self._server, self._answered)
        self._answered_last.set()

    def _pump(self, source: socket.socket, each: Callable[[bytes], None]) -> None:
        held, first = bytearray(), source is self._client and self._proxy.dialect == "postgres"
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                held += data
                while size := _size(held, self._proxy.dialect, first):
                    message, first = bytes(held[:size]), False
                    del held[:size]
                    each(message)
        self._cut()

    def _asked(self, message: bytes) -> None:
        proxy = self._proxy
        if proxy.armed is not None and _is_commit(message, proxy.dialect):
            if proxy.passing:
                proxy.passing -= 1
            elif proxy.holds:
                self._hold(message)
            else:
                self._left, proxy.armed = proxy.armed, None
        self._pass(self._server, message, ends=False)

    def _answered(self, message: bytes) -> None:
        ends = self._proxy.dialect == "mariadb" or message[:1] == b"Z"
        self._pass(self._client, message, ends)

    def _pass(self, to: socket.socket, message: bytes, ends: bool) -> None:
        if self._left is None:
            to.sendall(message)
            return
        passing = min(2, self._left)
        self._left -= passing
        to.sendall(message[: len(message) * passing // 2])
        if (passing < 2 or ends) and self._once.acquire(blocking=False):
            self._proxy.before_cut()
            self._cut()
            self._proxy.fired.set()

    def _hold(self, message: bytes) -> None:
        proxy = self._proxy
        proxy.armed, proxy.holds = None, False
        _reset(self._client)
        proxy.fired.set()
        proxy.released.wait(PATIENCE_S)
        with contextlib.suppress(OSError):  # the server has ended the session meanwhile
            self._server.sendall(message)
        self._answered_last.wait(PATIENCE_S)
        raise OSError("this connection is done with")

    def _cut(self) -> None:
        for side in (self._client, self._server):
            _reset(side)


def _reset(side: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is not connected any more
        side.shutdown(socket.SHUT_RDWR)
    side.close()


def _size(held: bytearray, dialect: str, first: bool) -> int:
    """The bytes of the first message; 0: it is not whole. ``first``: the one that opens a session of PostgreSQL."""
    header = 4 if first or dialect == "mariadb" else 5
    if len(held) < header:
        return 0
    if dialect == "mariadb":
        size = 4 + int.from_bytes(held[:3], "little")
    else:
        size = int.from_bytes(held[header - 4 : header], "big") + header - 4
    return size if len(held) >= size else 0


def _is_commit(message: bytes, dialect: str) -> bool:
    return message[4:].upper() == b"\3COMMIT" if dialect == "mariadb" else message[5:].upper() == b"COMMIT\0"
