"""A virtual ZooKeeper: a leader and followers that lag, sessions judged by the leader's clock, and kazoo's client.

What is true of the real one is true here. Requests of a connection are served in order, and so are its answers and
watch events. A write is atomic at the leader, and is answered once the client's own server has it. Reads may be old,
but never older than what the client has seen. A session ends when the leader has heard nothing for its timeout; its
ephemeral nodes go in one transaction, and its client hears of it when it is back. A client whose connection breaks does
not know what became of what it asked.

Its data can be put back to what it was (:meth:`Ensemble.put_back`). Sessions of then begin a new timeout, also those
that ended since; a client that has seen a later transaction is refused until it forgets that; or the transactions go on
above all that were, as with the new epoch of a quorum.

Heartbeats cost no events: a session counts as heard for as long as its connection can carry them.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from tests.simulation.threads import Threads
from tests.simulation.world import Process, World
from wormhole.coordination.records import Paths

__all__ = ["Committed", "Ensemble", "Op", "Snapshot", "Stat", "VirtualClient"]

_ROUND_TRIP_S: Final = 0.002
_SLOW: Final = 20
"""So many times as long a message of a slow connection takes."""
_SLOWEST_S: Final = 0.3
_NEW_EPOCH: Final = 1_000_000
"""A quorum numbers its transactions so much higher after it has elected a leader."""
_READS: Final = frozenset({"get", "exists", "children", "acls"})


class Stat(NamedTuple):
    """Of a node."""

    version: int
    ephemeralOwner: int  # noqa: N815 - kazoo's name
    czxid: int
    mzxid: int


class Op(NamedTuple):
    """One operation of a transaction. ``kind``: create, set, delete, check or ensure."""

    kind: str
    path: str
    data: bytes = b""
    version: int = -1
    ephemeral: bool = False


class Change(NamedTuple):
    """What one operation did to the tree. ``before``: the node's data, ``None``: there was none."""

    kind: str
    path: str
    data: bytes
    owner: int
    before: bytes | None


class Committed(NamedTuple):
    """A transaction that took effect. ``client``: who asked for it; ``None``: the end of a session, or an operator."""

    zxid: int
    client: VirtualClient | None
    session: int
    changes: tuple[Change, ...]
    ops: tuple[Op, ...]


class _Node:
    __slots__ = ("children", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, owner: int, zxid: int) -> None:
        self.data, self.owner, self.version = data, owner, 0
        self.czxid = self.mzxid = zxid
        self.children: dict[str, None] = {}

    def copy(self) -> _Node:
        """One that does not change with it."""
        copied = _Node(self.data, self.owner, self.czxid)
        copied.version, copied.mzxid, copied.children = self.version, self.mzxid, dict(self.children)
        return copied


class Snapshot(NamedTuple):
    """Everything that the leader held. ``era``: how often its data was put back before; ``sessions``: of then."""

    at: float
    era: int
    zxid: int
    nodes: dict[str, _Node]
    sessions: tuple[int, ...]


class _Session:
    __slots__ = ("conn", "dead", "ephemerals", "id", "silences", "timeout_s")

    def __init__(self, number: int, timeout_s: float) -> None:
        self.id = number
        self.timeout_s = timeout_s
        self.conn: _Conn | None = None
        self.dead = False
        self.ephemerals: dict[str, None] = {}
        self.silences = 0


class _Request:
    __slots__ = ("kind", "ops", "path", "result", "watcher")

    def __init__(self, kind: str, path: str, ops: tuple[Op, ...], watcher: Any, result: Result) -> None:
        self.kind, self.path, self.ops, self.watcher, self.result = kind, path, ops, watcher, result


class _Conn:
    """A connection of a client to one server. ``moved``: the session continued over another one."""

    __slots__ = ("busy", "client", "held_in", "held_out", "last_in", "last_out", "queue", "server", "session")

    def __init__(self, client: VirtualClient, server: _Server, session: _Session) -> None:
        self.client, self.server, self.session = client, server, session
        self.last_out = self.last_in = 0.0
        self.held_out: list[_Request] = []
        self.held_in: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.queue: deque[_Request] = deque()
        self.busy = False

    def reply(self, call: Callable[..., object], *arguments: Any) -> None:
        """The client gets something; in order."""
        client = self.client
        if not client.hears:
            self.held_in.append((call, arguments))
            return
        ensemble = client.ensemble
        when = max(self.last_in, ensemble.world.now + ensemble.delay(client.slowness))
        self.last_in = when
        client.process.deliver(when, call, self, *arguments)


class _Server:
    """One server with its copy of the tree."""

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble = ensemble
        self.number = number
        self.nodes: dict[str, _Node] = {"": _Node(b"", 0, 0)}
        self.zxid = 0
        self.data_watches: dict[str, dict[_Conn, None]] = {}
        self.child_watches: dict[str, dict[_Conn, None]] = {}
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self._last = 0.0

    def follow(self, committed: Committed) -> None:
        """Take over a transaction of the leader, a moment later."""
        ensemble = self.ensemble
        self._last = max(self._last, ensemble.world.now + ensemble.lag())
        ensemble.world.at(self._last, self.applied, committed, ensemble.era)

    def applied(self, committed: Committed, era: int = 0) -> None:
        """A follower has the transaction."""
        if era != self.ensemble.era:
            return  # of before its data was put back
        zxid, nodes = committed.zxid, self.nodes
        for kind, path, data, owner, _ in committed.changes:
            if kind == "create":
                nodes[path] = _Node(data, owner, zxid)
                parent, _, name = path.rpartition("/")
                nodes[parent].children[name] = None
            elif kind == "set":
                node = nodes[path]
                node.data, node.version, node.mzxid = data, node.version + 1, zxid
            else:
                del nodes[path]
                parent, _, name = path.rpartition("/")
                del nodes[parent].children[name]
        self.now_at(committed)

    def now_at(self, committed: Committed) -> None:
        """The tree shows the transaction: watches fire, and who waited for it goes on."""
        self.zxid = committed.zxid
        data_watches, child_watches = self.data_watches, self.child_watches
        for kind, path, _, _, _ in committed.changes:
            if kind != "set":
                watching = child_watches.pop(path.rpartition("/")[0], None)
                if watching:
                    self._fire(watching, "child", path.rpartition("/")[0])
            watching = data_watches.pop(path, None)
            if kind == "delete" and path in child_watches:
                watching = {**(watching or {}), **child_watches.pop(path)}
            if watching:
                self._fire(watching, "deleted" if kind == "delete" else "changed", path)
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            for zxid, go_on in waiting:
                if zxid <= self.zxid:
                    go_on()
                else:
                    self.waiting.append((zxid, go_on))

    def _fire(self, watching: Iterable[_Conn], kind: str, path: str) -> None:
        for conn in watching:
            conn.reply(conn.client.event, kind, path)

    def when_at(self, zxid: int, go_on: Callable[[], None]) -> None:
        """Call once this server has the transaction of that number."""
        if self.zxid >= zxid:
            go_on()
        else:
            self.waiting.append((zxid, go_on))

    def put_back(self, nodes: dict[str, _Node], zxid: int) -> None:
        """It holds a copy of this, and knows no connection."""
        self.nodes, self.zxid = {path: node.copy() for path, node in nodes.items()}, zxid
        self.data_watches, self.child_watches, self.waiting = {}, {}, []

    def forget(self, conn: _Conn) -> None:
        """Its watches go with a connection."""
        for watches in (self.data_watches, self.child_watches):
            for path in [path for path, watching in watches.items() if conn in watching]:
                del watches[path][conn]

    # -- requests

    def receive(self, conn: _Conn, request: _Request) -> None:
        """A request arrived."""
        session = conn.session
        if session.dead or session.conn is not conn:
            return  # the connection is closed here, or the session moved: nobody answers
        conn.queue.append(request)
        if not conn.busy:
            self._go_on(conn)

    def _go_on(self, conn: _Conn) -> None:
        ensemble = self.ensemble
        conn.busy = ensemble.frozen_until > ensemble.world.now
        if conn.busy:
            ensemble.world.at(ensemble.frozen_until, self._go_on, conn)
        while conn.queue and not conn.busy and conn.session.conn is conn and not conn.session.dead:
            self._serve(conn, conn.queue.popleft())

    def _serve(self, conn: _Conn, request: _Request) -> None:
        ensemble = self.ensemble
        if request.kind in _READS:
            self._answer(conn, request, self._read(conn, request))
            return
        conn.busy = True
        if self is ensemble.leader:
            self._lead(conn, request)
        else:
            ensemble.world.after(ensemble.delay(), self._lead, conn, request)

    def _lead(self, conn: _Conn, request: _Request) -> None:
        ensemble = self.ensemble
        if ensemble.frozen_until > ensemble.world.now:
            ensemble.world.at(ensemble.frozen_until, self._lead, conn, request)
            return
        if conn.session.dead or conn.session.conn is not conn:
            return
        if request.kind == "sync":
            value: Any = request.path
        elif request.kind == "close":
            ensemble.end(conn.session, conn.client)
            return
        else:
            value = ensemble.commit(conn.client, conn.session, request.kind, request.ops)
            if ensemble.trap is not None:
                ensemble.trap(conn.client, request.ops)
        self.when_at(ensemble.leader.zxid, lambda: self._served(conn, request, value))

    def _served(self, conn: _Conn, request: _Request, value: Any) -> None:
        self._answer(conn, request, value)
        self._go_on(conn)

    def _read(self, conn: _Conn, request: _Request) -> Any:
        node, kind = self.nodes.get(request.path), request.kind
        if request.watcher is not None and (node is not None or kind == "exists"):
            watches = self.child_watches if kind == "children" else self.data_watches
            watches.setdefault(request.path, {})[conn] = None
        if node is None:
            return None if kind == "exists" else NoNodeError()
        if kind == "children":
            return list(node.children)
        stat = Stat(node.version, node.owner, node.czxid, node.mzxid)
        return stat if kind == "exists" else (node.data, stat) if kind == "get" else ([], stat)

    def _answer(self, conn: _Conn, request: _Request, value: Any) -> None:
        conn.reply(conn.client.answered, request, value, self.zxid)


class Ensemble:
    """The service. ``frozen_until``: the leader does nothing before. ``era``: how often its data was put back.
    ``observer`` is called with every transaction,
    ``trap`` after every write of a client that took effect or was refused. ``slow_s``: longest delay of a message now;
    ``lag_s``: of a follower. ``slow_watches_s``: how long a client's thread for watch events may be late.
    """

    def __init__(self, world: World, threads: Threads, timeout_s: float, servers: int) -> None:
        self.world = world
        self.threads = threads
        self.timeout_s = timeout_s
        self.servers = [_Server(self, number) for number in range(servers)]
        self.leader = self.servers[0]
        self.frozen_until = 0.0
        self.era = 0
        self.slow_s = _ROUND_TRIP_S
        self.lag_s = 0.02
        self.slow_watches_s = 0.001
        self.observer: Callable[[Committed], None] = lambda committed: None
        self.trap: Callable[[VirtualClient, Sequence[Op]], None] | None = None
        self.clients: list[VirtualClient] = []
        self._sessions: dict[int, _Session] = {}
        self._numbers = count(0x1000)

    def delay(self, slowness: int = 1) -> float:
        """Of one message."""
        longest = self.slow_s
        if slowness != 1:
            longest = max(longest, min(_SLOWEST_S, longest * slowness))
        return 0.0001 + self.world.chance.random() * longest

    def lag(self) -> float:
        """Of one follower behind the leader."""
        return 0.0001 + self.world.chance.random() * self.lag_s

    # -- sessions

    def connect(self, client: VirtualClient) -> None:
        """A client wants to open or continue its session."""
        world = self.world
        if client.process.dead or client.closed:
            return
        if self.frozen_until > world.now:
            client.process.deliver(self.frozen_until + self.delay(), client.unreachable)
            return
        server = world.chance.choice(self.servers)
        if client.last_zxid > server.zxid:
            client.process.deliver(world.now + self.delay(), client.unreachable)  # it has seen what this one has not
            return
        session = self._sessions.get(client.session_id)
        if client.session_id and (session is None or session.dead):
            client.process.deliver(world.now + self.delay(), client.expired)
            return
        if session is None:
            session = _Session(next(self._numbers), self.timeout_s)
            self._sessions[session.id] = session
        if session.conn is not None:
            session.conn.server.forget(session.conn)
        conn = session.conn = client.offered = _Conn(client, server, session)
        if client.process.paused or not client.speaks:
            self.silent(session)
        else:
            self.heard(session)
        client.process.deliver(world.now + self.delay(), client.established, conn)

    def heard(self, session: _Session) -> None:
        """Heartbeats of the session arrive from now on."""
        session.silences += 1

    def silent(self, session: _Session) -> None:
        """No heartbeat of the session arrives from now on; the last one came within a third of its timeout."""
        if session.dead:
            return
        session.silences += 1
        chance, timeout_s = self.world.chance, session.timeout_s
        # Servers look at sessions in steps, so one may live longer than its timeout, and never shorter.
        left_s = timeout_s * (1 - chance.random() / 3) + chance.random() * timeout_s / 3
        self.world.after(left_s, self._expire, session, session.silences)

    def _expire(self, session: _Session, silences: int) -> None:
        if session.silences != silences or session.dead:
            return
        if self.frozen_until > self.world.now:
            # Heartbeats that waited meanwhile are read first.
            self.world.at(self.frozen_until, self._expire, session, silences)
            return
        self.world.trace(f"ZooKeeper ends session {session.id:#x}")
        self.end(session, None)

    def end(self, session: _Session, client: VirtualClient | None) -> None:
        """The session is over, with everything ephemeral."""
        if session.dead:
            return
        session.dead = True
        conn, session.conn = session.conn, None
        ops = tuple(Op("delete", path) for path in session.ephemerals)
        if ops:
            self.commit(client, session, "multi", ops)
        if conn is not None:
            conn.server.forget(conn)
            if client is None:
                conn.reply(conn.client.closed_by_server)

    def hung_up(self, conn: _Conn) -> None:
        """The client's end of a connection closed, and the server notices."""
        conn.server.forget(conn)
        if conn.session.conn is conn:
            self.silent(conn.session)

    # -- transactions

    def commit(self, client: VirtualClient | None, session: _Session | None, kind: str, ops: Sequence[Op]) -> Any:
        """Do all of ``ops``, or nothing. What the client is answered: an exception, or the result of the operation, or
        of each in a transaction of several (``multi``).
        """
        leader = self.leader
        zxid, changes, results = leader.zxid + 1, list[Change](), list[Any]()
        failure: Exception | None = None
        for op in ops:
            try:
                results.append(self._do(op, session, zxid, changes))
            except Exception as error:
                failure = error
                break
        if failure is not None:
            for change in reversed(changes):
                self._undo(change, zxid)
            if kind != "multi":
                return failure
            rest = [RuntimeInconsistency() for _ in range(len(ops) - len(results) - 1)]
            return [*(RolledBackError() for _ in results), failure, *rest]
        if changes:
            committed = Committed(zxid, client, 0 if session is None else session.id, tuple(changes), tuple(ops))
            for change in changes:
                owner = self._sessions.get(change.owner)
                if change.kind == "create" and owner is not None:
                    owner.ephemerals[change.path] = None
                elif change.kind == "delete" and owner is not None and not owner.dead:
                    owner.ephemerals.pop(change.path, None)
            if self.world.traced:
                self._trace(committed)
            leader.now_at(committed)
            for server in self.servers[1:]:
                server.follow(committed)
            self.observer(committed)
        return results if kind == "multi" else results[0]

    def _trace(self, committed: Committed) -> None:
        who = "" if committed.client is None else committed.client.process.name
        what = ", ".join(f"{change.kind} {change.path.removeprefix('/sim')}" for change in committed.changes)
        self.world.trace(f"ZooKeeper {committed.zxid} of {who or 'itself'}: {what}")

    def _do(self, op: Op, session: _Session | None, zxid: int, changes: list[Change]) -> Any:
        nodes, path = self.leader.nodes, op.path
        node = nodes.get(path)
        if op.kind == "create":
            return self._create(op, session, zxid, changes)
        if op.kind == "ensure":
            self._make_above(f"{path}/x", zxid, changes)
            return path
        if node is None:
            raise NoNodeError
        if op.version not in (-1, node.version):
            raise BadVersionError
        if op.kind == "set":
            changes.append(Change("set", path, op.data, 0, node.data))
            node.data, node.version, node.mzxid = op.data, node.version + 1, zxid
            return Stat(node.version, node.owner, node.czxid, zxid)
        if op.kind == "delete":
            if node.children:
                raise NotEmptyError
            changes.append(Change("delete", path, b"", node.owner, node.data))
            del nodes[path]
            parent, _, name = path.rpartition("/")
            del nodes[parent].children[name]
        return True

    def _create(self, op: Op, session: _Session | None, zxid: int, changes: list[Change]) -> str:
        nodes, path = self.leader.nodes, op.path
        parent, _, name = path.rpartition("/")
        if parent not in nodes:
            raise NoNodeError
        if path in nodes:
            raise NodeExistsError
        owner = session.id if op.ephemeral and session is not None else 0
        nodes[path] = _Node(op.data, owner, zxid)
        nodes[parent].children[name] = None
        changes.append(Change("create", path, op.data, owner, None))
        return path

    def _make_above(self, path: str, zxid: int, changes: list[Change]) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self.leader.nodes:
            self._make_above(parent, zxid, changes)
            self._create(Op("create", parent), None, zxid, changes)

    def _undo(self, change: Change, zxid: int) -> None:
        nodes, path = self.leader.nodes, change.path
        parent, _, name = path.rpartition("/")
        if change.kind == "create":
            del nodes[path]
            del nodes[parent].children[name]
        elif change.kind == "set":
            assert change.before is not None
            node = nodes[path]
            node.data, node.version = change.before, node.version - 1
        else:
            assert change.before is not None
            node = nodes[path] = _Node(change.before, change.owner, zxid)
            nodes[parent].children[name] = None

    # -- faults

    def freeze(self, seconds: float) -> None:
        """The leader does nothing for a while."""
        self.world.trace(f"ZooKeeper's leader is paused for {seconds:.2f} s")
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        for client in self.clients:
            client.may_be_deaf()

    def restore(self, path: str, data: bytes | None) -> None:
        """An older copy of its data is restored: no session survives, and the node is as it was then."""
        self.world.trace(f"ZooKeeper is restored, with {'no' if data is None else 'an older'} {path}")
        self.end_sessions()
        there = path in self.leader.nodes
        ops = [Op("delete", path)] * there + ([] if data is None else [Op("create", path, data)])
        self.commit(None, None, "multi", ops)

    def snapshot(self) -> Snapshot:
        """A copy of all that it holds now."""
        leader = self.leader
        nodes = {path: node.copy() for path, node in leader.nodes.items()}
        sessions = tuple(session.id for session in self._sessions.values() if not session.dead)
        return Snapshot(self.world.now, self.era, leader.zxid, nodes, sessions)

    def put_back(self, snapshot: Snapshot, *, above: bool, down_s: float) -> None:
        """All servers stop, hold the snapshot, and begin again after ``down_s``. ``above``: their transactions go on
        above all that were; else above those of the snapshot.
        """
        world = self.world
        kind = "a new epoch" if above else "the numbers of then"
        world.trace(f"ZooKeeper is put back to {snapshot.at:.3f}, in {kind}, after {down_s:.2f} s")
        self.era += 1
        former, self._sessions = self._sessions, {}
        for session in former.values():
            conn, session.conn, session.dead = session.conn, None, True
            if conn is not None:
                conn.reply(conn.client.closed_by_server)
        for client in self.clients:
            client.confirmed = 0
        zxid = self.leader.zxid + _NEW_EPOCH if above else snapshot.zxid
        for server in self.servers:
            server.put_back(snapshot.nodes, zxid)
        self.frozen_until = max(self.frozen_until, world.now + down_s)
        for number in snapshot.sessions:
            session = self._sessions[number] = _Session(number, self.timeout_s)
            left_s = down_s + session.timeout_s * (1 + world.chance.random() / 3)
            world.after(left_s, self._expire, session, session.silences)
        for path, node in snapshot.nodes.items():
            if node.owner:
                self._sessions[node.owner].ephemerals[path] = None

    def end_sessions(self) -> None:
        """No session survives."""
        for session in tuple(self._sessions.values()):
            self.end(session, None)

    def put(self, path: str, data: bytes) -> None:
        """An operator writes a node, made where it is missing."""
        ops = (Op("ensure", path), Op("set", path, data))
        self.commit(None, None, "multi", ops)

    def data(self, path: str) -> bytes | None:
        """What the leader holds."""
        node = self.leader.nodes.get(path)
        return None if node is None else node.data


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
        self, ensemble: Ensemble, process: Process, paths: Paths, negotiated: Callable[[float], None] = lambda s: None
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
        self._listeners: dict[Callable[[str], object], None] = {}
        self._data_watchers: dict[str, dict[Callable[[object], object], None]] = {}
        self._child_watchers: dict[str, dict[Callable[[object], object], None]] = {}
        self._conn: _Conn | None = None
        self.offered: _Conn | None = None
        """What a server has, and the client has not heard of perhaps."""
        self._stray: list[tuple[_Conn, _Request]] = []
        self._pending: deque[_Request] = deque()
        self._queue: deque[_Request] = deque()
        self._tries = 0
        self._attempts = 0
        self._deaf = 0
        self._lost_at: float | None = None
        self._wake: Callable[[], None] | None = None
        ensemble.clients.append(self)
        process.noticing.append(self)

    # -- life

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
            self._send(_Request("close", "", (), None, Result(self)))
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
        self.ensemble.world.after(self.ensemble.delay(), self.ensemble.connect, self)

    def unreachable(self) -> None:
        """No server took it."""
        self._tries += 1
        pause = min(2.0, 0.05 * 2.0**self._tries) * (0.5 + self.ensemble.world.chance.random())
        self._try_again(pause)

    def established(self, conn: _Conn) -> None:
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
        self._negotiated(conn.session.timeout_s)
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

    def closed_by_server(self, conn: _Conn) -> None:
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

    def _is_deaf(self, conn: _Conn, number: int) -> None:
        ensemble = self.ensemble
        hears = self.hears and self.speaks and ensemble.frozen_until <= ensemble.world.now
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
                self.ensemble.heard(conn.session)
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
            self.ensemble.heard(conn.session)

    def killed(self) -> None:
        """Its process ended: the connection closes."""
        conn, self._conn = self.offered, None
        self.closed = True
        if conn is not None and self.speaks:
            self.ensemble.world.after(self.ensemble.delay(), self.ensemble.hung_up, conn)

    # -- questions

    def _ask(self, kind: str, path: str, ops: tuple[Op, ...] = (), watcher: Any = None) -> Result:
        result = Result(self)
        request = _Request(kind, path, ops, watcher, result)
        if self.closed or self.process.dead:
            result.settle(ConnectionClosedError("Connection has been closed"))
        elif self._conn is None:
            self._queue.append(request)  # sent when there is a connection again
        else:
            self._send(request)
        return result

    def _send(self, request: _Request) -> None:
        conn = self._conn
        assert conn is not None
        self._pending.append(request)
        if self.speaks:
            self._send_over(conn, request)
        else:
            conn.held_out.append(request)

    def _send_over(self, conn: _Conn, request: _Request) -> None:
        ensemble = self.ensemble
        conn.last_out = max(conn.last_out, ensemble.world.now + ensemble.delay(self.slowness))
        ensemble.world.at(conn.last_out, conn.server.receive, conn, request)

    def answered(self, conn: _Conn, request: _Request, value: Any, zxid: int) -> None:
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

    def event(self, conn: _Conn, kind: str, path: str) -> None:
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
    """Of a transaction, the answer to its last operation, or why it failed."""
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
