"""Takes the place of kazoo's client: one session with the virtual ZooKeeper of :mod:`tests.simulation.zookeeper`."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, RolledBackError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from tests.simulation.world import Process
from tests.simulation.zookeeper import Connection, Ensemble, Op, Request, Server
from tests.support.present import present
from wormhole.coordination.records import Paths

__all__ = ["Result", "VirtualClient"]

_SLOW: Final = 20
"""So many times as long a message of a slow connection takes."""


class Result:
    """The answer to one question, as kazoo's ``AsyncResult``."""

    __slots__ = ("_client", "_error", "_links", "_ready", "_wake", "value")

    def __init__(self, client: VirtualClient) -> None:
        self._client = client
        self._ready = False
        self._error: Exception | None = None
        self._links: list[Callable[[Result], object]] | None = None
        self._wake: Callable[[], None] | None = None
        self.value: Any = None

    @property
    def exception(self) -> Exception | None:
        return self._error

    def ready(self) -> bool:
        return self._ready

    def successful(self) -> bool:
        return self._ready and self._error is None

    def settle(self, value: Any) -> None:
        """The answer came; an exception is one, too."""
        if self._ready:
            return
        self._ready = True
        if isinstance(value, Exception):
            self._error = value
        else:
            self.value = value
        if self._wake is not None:
            self._wake()
        for link in self._links or ():
            link(self)

    def rawlink(self, callback: Callable[[Result], object]) -> None:
        if self._ready:
            callback(self)
        elif self._links is None:
            self._links = [callback]
        else:
            self._links.append(callback)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._ready and block:
            threads = self._client.ensemble.threads
            self._wake = threads.waker()
            threads.wait(timeout)
        if not self._ready:
            raise KazooTimeoutError
        if self._error is not None:
            raise self._error
        return self.value


class VirtualClient:
    """Takes the place of kazoo's client. ``hears`` and ``speaks``: whether messages pass in that direction;
    ``slowness``: how many times as long they take as usual. ``confirmed``: the last transaction that an answer showed
    since ZooKeeper's data was put back.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        process: Process,
        paths: Paths,
        negotiated: Callable[[float, float], None] = lambda seconds, asked: None,
    ) -> None:
        self.ensemble = ensemble
        self.process = process
        self.paths = paths
        self.access: Any = None
        self.identity = ""
        self.client_state = KeeperState.CLOSED
        self.connected = False
        self.closed = True
        self.session_id = 0
        self.last_zxid = self.confirmed = 0
        self.hears = self.speaks = True
        self.slowness = ensemble.world.chance.choice((1, 1, 1, _SLOW))
        self._negotiated = negotiated
        self._asked_at = 0.0
        self._listeners: dict[Callable[[str], object], None] = {}
        self._data_watchers: dict[str, dict[Callable[[object], object], None]] = {}
        self._child_watchers: dict[str, dict[Callable[[object], object], None]] = {}
        self._conn: Connection | None = None
        self.offered: Connection | None = None
        """What a server has, and the client has not heard of perhaps."""
        self._stray: list[tuple[Connection, Request]] = []
        self._pending: deque[Request] = deque()
        self._queue: deque[Request] = deque()
        self._tries = 0
        self._attempts = 0
        self._deaf = 0
        self._lost_at: float | None = None
        self._wake: Callable[[], None] | None = None
        ensemble.clients.append(self)
        process.noticing.append(self)

    # -- life

    @property
    def server(self) -> Server | None:
        """The one that it is connected to."""
        return None if self._conn is None else self._conn.server

    @property
    def _session_id(self) -> int:
        """As kazoo calls it."""
        return self.session_id

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners.pop(listener, None)

    def begin(self) -> None:
        """Connect, without waiting for it."""
        self.closed = False
        self.client_state = KeeperState.CONNECTING
        self._try_again(0.0)

    def start(self, timeout: float = 15.0) -> None:
        """Connect. Blocks, and raises kazoo's timeout."""
        self.begin()
        if not self.connected:
            threads = self.ensemble.threads
            self._wake = threads.waker()
            threads.wait(timeout)
        if not self.connected:
            self.stop()
            raise KazooTimeoutError("Connection time-out")

    def stop(self) -> None:
        """End the session; without a connection its timeout does."""
        if self.closed:
            return
        if self._conn is not None:
            self._send(Request("close", "", (), None, Result(self)))
        self.closed, self._conn = True, None
        if self.offered is not None and self.speaks:
            self.ensemble.world.after(self.ensemble.delay() * 3, self.ensemble.hung_up, self.offered)
        self._state(KeeperState.CLOSED, KazooState.LOST, ConnectionClosedError())

    def close(self) -> None:
        """Free what it holds."""
        with contextlib.suppress(ValueError):
            self.process.noticing.remove(self)

    def _state(self, keeper: str, state: str, error: Exception | None) -> None:
        self.client_state = keeper
        self.connected = error is None
        if error is not None:
            if self._lost_at is None:
                self._lost_at = self.process.monotonic()
            for waiting in (self._pending, self._queue):
                while waiting:
                    waiting.popleft().result.settle(error)
        for listener in tuple(self._listeners):
            listener(state)
        if error is not None:
            watchers = [*self._data_watchers.values(), *self._child_watchers.values()]
            self._data_watchers, self._child_watchers = {}, {}
            for some in watchers:
                self._call_watchers(some, "none")

    def _call_watchers(self, watchers: Iterable[Callable[[object], object]], kind: str) -> None:
        world = self.ensemble.world
        for watcher in watchers:
            late = world.chance.random() * self.ensemble.slow_watches_s
            self.process.deliver(world.now + late, watcher, kind)

    # -- connections

    def _try_again(self, seconds: float) -> None:
        self._attempts += 1
        self.process.deliver(self.ensemble.world.now + seconds / self.process.rate, self._attempt, self._attempts)

    def _attempt(self, number: int) -> None:
        if self.closed or self._conn is not None or number != self._attempts:
            return
        if not (self.hears and self.speaks):
            self.unreachable()
            return
        if (
            self._lost_at is not None
            and self.last_zxid
            and self.process.monotonic() - self._lost_at > self.ensemble.timeout_s
        ):
            self.last_zxid = 0  # as publishers do: the server may have lost its data
        self._asked_at = self.process.monotonic()
        self.ensemble.world.after(self.ensemble.delay(), self.ensemble.connect, self)

    def unreachable(self) -> None:
        """No server took it."""
        self._tries += 1
        pause = min(2.0, 0.05 * 2.0**self._tries) * (0.5 + self.ensemble.world.chance.random())
        self._try_again(pause)

    def established(self, conn: Connection) -> None:
        """A server took it."""
        if self.closed:
            return
        if conn.session.conn is not conn or not (self.hears and self.speaks):
            self.ensemble.hung_up(conn)
            self.unreachable()
            return
        self._conn, self.session_id, self._tries, self._lost_at = conn, conn.session.id, 0, None
        self.ensemble.heard(conn.session)
        self._state(KeeperState.CONNECTED, KazooState.CONNECTED, None)
        self._negotiated(conn.session.timeout_s, self._asked_at)
        if self._wake is not None:
            self._wake()
        while self._queue and self._conn is conn:
            self._send(self._queue.popleft())

    def expired(self) -> None:
        """The session is over."""
        if self.closed:
            return
        self.session_id = self.last_zxid = 0
        self._state(KeeperState.EXPIRED_SESSION, KazooState.LOST, SessionExpiredError())
        self.client_state = KeeperState.CONNECTING
        self._try_again(0.01)

    def closed_by_server(self, conn: Connection) -> None:
        """The server closed the connection."""
        if self._conn is conn:
            self.drop()

    def drop(self) -> None:
        """The connection is broken: what became of what was asked is not known."""
        conn, self._conn = self._conn, None
        if conn is None:
            return
        ensemble = self.ensemble
        ensemble.world.trace(f"{self.process.name} loses its connection to ZooKeeper")
        if self.speaks:
            ensemble.world.after(ensemble.delay() * 2, ensemble.hung_up, conn)
        elif ensemble.world.chance.random() < 0.5:
            self._stray = [(conn, request) for request in conn.held_out]  # its host goes on trying to send them
        self._state(KeeperState.CONNECTING, KazooState.SUSPENDED, ConnectionLoss())
        self._try_again(0.05 * ensemble.world.chance.random())

    def may_be_deaf(self) -> None:
        """Answers may be missing from now on: after two thirds of a session without any it hangs up."""
        if self._conn is not None:
            self._deaf += 1
            patience = self.ensemble.timeout_s * (0.5 + self.ensemble.world.chance.random() / 6)
            when = self.ensemble.world.now + patience / self.process.rate
            self.process.deliver(when, self._is_deaf, self._conn, self._deaf)

    def _is_deaf(self, conn: Connection, number: int) -> None:
        ensemble = self.ensemble
        stuck = conn.server.isolated and conn.busy  # heartbeats are answered in order, too
        hears = self.hears and self.speaks and ensemble.frozen_until <= ensemble.world.now and not stuck
        if self._conn is conn and number == self._deaf and not hears:
            self.drop()

    # -- faults

    def partition(self, *, hears: bool, speaks: bool) -> None:
        """Which directions carry messages from now on."""
        if (hears, speaks) == (self.hears, self.speaks):
            return
        spoke, heard = self.speaks, self.hears
        self.hears, self.speaks = hears, speaks
        conn, offered = self._conn, self.offered
        if spoke and not speaks and offered is not None and offered.session.conn is offered:
            self.ensemble.silent(offered.session)
        if speaks and not spoke:
            stray, self._stray = self._stray, []
            for former, request in stray:
                self._send_over(former, request)
        if conn is None:
            return
        if not (hears and speaks):
            self.may_be_deaf()
        if speaks and not spoke:
            if conn.session.conn is conn and not self.process.paused:
                self.ensemble.heard(conn.session, now=True)
            held, conn.held_out = conn.held_out, []
            for request in held:
                self._send_over(conn, request)
        if hears and not heard:
            answers, conn.held_in = conn.held_in, []
            for call, arguments in answers:
                conn.reply(call, *arguments)

    def cut(self) -> None:
        """The connection breaks at once; answers that are under way are lost."""
        self.process.deliver(self.ensemble.world.now, self.drop)

    def paused(self) -> None:
        """Its process stops: no heartbeats."""
        conn = self.offered
        if conn is not None and conn.session.conn is conn and self.speaks:
            self.ensemble.silent(conn.session)

    def resumed(self) -> None:
        """Its process goes on."""
        conn = self._conn
        if conn is not None and conn.session.conn is conn and self.speaks:
            self.ensemble.heard(conn.session, now=True)

    def killed(self) -> None:
        """Its process ended: the connection closes."""
        conn, self._conn = self.offered, None
        self.closed = True
        if conn is not None and self.speaks:
            self.ensemble.world.after(self.ensemble.delay(), self.ensemble.hung_up, conn)

    # -- questions

    def _ask(self, kind: str, path: str, ops: tuple[Op, ...] = (), watcher: Any = None) -> Result:
        result = Result(self)
        request = Request(kind, path, ops, watcher, result)
        if self.closed or self.process.dead:
            result.settle(ConnectionClosedError("Connection has been closed"))
        elif self._conn is None:
            self._queue.append(request)  # sent when there is a connection again
        else:
            self._send(request)
        return result

    def _send(self, request: Request) -> None:
        conn = present(self._conn)
        self._pending.append(request)
        if self.speaks:
            self._send_over(conn, request)
        else:
            conn.held_out.append(request)

    def _send_over(self, conn: Connection, request: Request) -> None:
        ensemble = self.ensemble
        conn.last_out = max(conn.last_out, ensemble.world.now + ensemble.delay(self.slowness))
        ensemble.world.at(conn.last_out, conn.server.receive, conn, request)

    def answered(self, conn: Connection, request: Request, value: Any, zxid: int) -> None:
        """An answer arrived."""
        if self._conn is not conn:
            return
        assert self._pending.popleft() is request, "answers come in order"
        self.last_zxid = max(self.last_zxid, zxid)
        if conn.session.conn is conn:
            self.confirmed = max(self.confirmed, zxid)
        watcher, failed = request.watcher, isinstance(value, Exception)
        if watcher is not None and not failed:
            watchers = self._child_watchers if request.kind == "children" else self._data_watchers
            watchers.setdefault(request.path, {})[watcher] = None
        request.result.settle(value)

    def event(self, conn: Connection, kind: str, path: str) -> None:
        """A watch event arrived."""
        if self._conn is not conn:
            return
        watchers = list(self._child_watchers.pop(path, ())) if kind in ("child", "deleted") else []
        if kind != "child":
            watchers += self._data_watchers.pop(path, ())
        self._call_watchers(watchers, kind)

    def get_async(self, path: str, watch: Any = None) -> Result:
        return self._ask("get", path, (), watch)

    def exists_async(self, path: str, watch: Any = None) -> Result:
        return self._ask("exists", path, (), watch)

    def get_children_async(self, path: str, watch: Any = None) -> Result:
        return self._ask("children", path, (), watch)

    def get_acls_async(self, path: str) -> Result:
        return self._ask("acls", path)

    def sync_async(self, path: str) -> Result:
        return self._ask("sync", path)

    def set_async(self, path: str, value: bytes, version: int = -1) -> Result:
        return self._ask("set", path, (Op("set", path, value, version),))

    def create_async(
        self, path: str, value: bytes = b"", acl: Any = None, *, ephemeral: bool = False, makepath: bool = False
    ) -> Result:
        create = Op("create", path, value, -1, ephemeral)
        if not makepath:
            return self._ask("create", path, (create,))
        above = Op("ensure", path.rpartition("/")[0])
        result = Result(self)
        self._ask("multi", path, (above, create)).rawlink(lambda answer: result.settle(_last(answer)))
        return result

    def delete_async(self, path: str, version: int = -1) -> Result:
        return self._ask("delete", path, (Op("delete", path, b"", version),))

    def ensure_path_async(self, path: str) -> Result:
        return self._ask("ensure", path, (Op("ensure", path),))

    def ask_access(self) -> Result:
        return self.get_async(self.paths.access)

    def transaction(self) -> _Transaction:
        return _Transaction(self)


def _last(answer: Result) -> Any:
    """The answer to a transaction's last operation, or why the transaction failed."""
    if answer.exception is not None:
        return answer.exception
    return next(
        (one for one in answer.value if isinstance(one, Exception) and not isinstance(one, RolledBackError)),
        answer.value[-1],
    )


class _Transaction:
    """Takes the place of kazoo's ``TransactionRequest``."""

    def __init__(self, client: VirtualClient) -> None:
        self._client = client
        self._ops: list[Op] = []

    def create(self, path: str, value: bytes = b"", acl: Any = None, *, ephemeral: bool = False) -> None:
        self._ops.append(Op("create", path, value, -1, ephemeral))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        self._ops.append(Op("set", path, value, version))

    def delete(self, path: str, version: int = -1) -> None:
        self._ops.append(Op("delete", path, b"", version))

    def check(self, path: str, version: int) -> None:
        self._ops.append(Op("check", path, b"", version))

    def commit_async(self) -> Result:
        return self._client._ask("multi", "", tuple(self._ops))
