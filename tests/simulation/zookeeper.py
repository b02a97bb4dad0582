"""A virtual ZooKeeper: a leader and followers that lag, and sessions judged by the leader's clock. Its clients are in
:mod:`tests.simulation.zookeeper_client`.

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

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from tests.simulation.threads import Threads
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.zookeeper_client import Result, VirtualClient

__all__ = ["Change", "Committed", "Connection", "Ensemble", "Op", "Request", "Server", "Snapshot", "Stat"]

_ROUND_TRIP_S: Final = 0.002
_SLOWEST_S: Final = 0.3
_NEW_EPOCH: Final = 1_000_000
"""A quorum numbers its transactions so much higher after it has elected a leader."""
_READS: Final = frozenset({"get", "exists", "children", "acls"})


class Stat(NamedTuple):
    """The status of a node."""

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
    """``noted``: when its server last received something of it; ``touched``: when the leader last learned that.
    ``speaks``: whether its heartbeats reach the server.
    """

    __slots__ = ("conn", "dead", "ephemerals", "id", "noted", "silences", "speaks", "timeout_s", "touched")

    def __init__(self, number: int, timeout_s: float, touched: float) -> None:
        self.id = number
        self.timeout_s = timeout_s
        self.noted = self.touched = touched
        self.speaks = False
        self.conn: Connection | None = None
        self.dead = False
        self.ephemerals: dict[str, None] = {}
        self.silences = 0


class Request:
    __slots__ = ("kind", "ops", "path", "result", "watcher")

    def __init__(self, kind: str, path: str, ops: tuple[Op, ...], watcher: Any, result: Result) -> None:
        self.kind, self.path, self.ops, self.watcher, self.result = kind, path, ops, watcher, result


class Connection:
    """A connection of a client to one server. ``moved``: the session continued over another one."""

    __slots__ = ("busy", "client", "held_in", "held_out", "last_in", "last_out", "queue", "server", "session")

    def __init__(self, client: VirtualClient, server: Server, session: _Session) -> None:
        self.client, self.server, self.session = client, server, session
        self.last_out = self.last_in = 0.0
        self.held_out: list[Request] = []
        self.held_in: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.queue: deque[Request] = deque()
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


class Server:
    """One server with its copy of the tree. ``isolated``: a follower and the leader do not hear each other, and the
    follower has not noticed, so it answers what it can answer alone; ``looking``: it has noticed, and serves no client.
    """

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble = ensemble
        self.number = number
        self.isolated = self.looking = False
        self.nodes: dict[str, _Node] = {"": _Node(b"", 0, 0)}
        self.zxid = 0
        self.data_watches: dict[str, dict[Connection, None]] = {}
        self.child_watches: dict[str, dict[Connection, None]] = {}
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self._last = 0.0
        self._held: list[Committed] = []
        self._stuck: list[tuple[Connection, Request]] = []
        self._isolations = 0

    def follow(self, committed: Committed) -> None:
        """Take over a transaction of the leader, a moment later."""
        ensemble = self.ensemble
        self._last = max(self._last, ensemble.world.now + ensemble.lag())
        ensemble.world.at(self._last, self.applied, committed, ensemble.era)

    def applied(self, committed: Committed, era: int = 0) -> None:
        """A follower has the transaction."""
        if era != self.ensemble.era:
            return  # the transaction is from before the data was restored
        if self.isolated:
            self._held.append(committed)
            return
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

    def _fire(self, watching: Iterable[Connection], kind: str, path: str) -> None:
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
        self.isolated = self.looking = False
        self._held, self._stuck = [], []
        self._isolations += 1

    def isolate(self, seconds: float, unnoticed_s: float) -> None:
        """Neither this follower nor the leader hears the other for so long. The follower notices after
        ``unnoticed_s``, and closes its connections.
        """
        if self.isolated:
            return
        ensemble, world = self.ensemble, self.ensemble.world
        world.trace(
            f"ZooKeeper's server {self.number} is isolated for {seconds:.2f} s, unnoticed for {unnoticed_s:.2f} s"
        )
        ensemble.unheard(self)
        self.isolated = True
        self._isolations += 1
        world.after(unnoticed_s, self._look, self._isolations)
        world.after(seconds, self.heal, self._isolations)

    def _look(self, number: int) -> None:
        if self.isolated and number == self._isolations:
            self.ensemble.world.trace(f"ZooKeeper's server {self.number} closes its connections")
            self.looking = True
            self._stuck.clear()
            self.waiting.clear()
            self.ensemble.close_at(self, lambda session: True)

    def heal(self, number: int | None = None) -> None:
        """It hears the leader again, and catches up."""
        if not self.isolated or number not in (None, self._isolations):
            return
        self.ensemble.world.trace(f"ZooKeeper's server {self.number} is no longer isolated")
        self.isolated = self.looking = False
        held, self._held = self._held, []
        for committed in held:
            self.applied(committed, self.ensemble.era)
        self.ensemble.heard_again(self)
        stuck, self._stuck = self._stuck, []
        for conn, request in stuck:
            self.ensemble.world.after(self.ensemble.delay(), self._lead, conn, request)

    def forget(self, conn: Connection) -> None:
        """Its watches go with a connection."""
        for watches in (self.data_watches, self.child_watches):
            for path in [path for path, watching in watches.items() if conn in watching]:
                del watches[path][conn]

    # -- requests

    def receive(self, conn: Connection, request: Request) -> None:
        """A request arrived."""
        session = conn.session
        if session.conn is not conn or (session.dead and not self.isolated) or self.looking:
            return  # the connection is closed here, or the session moved: there is no answer
        self.ensemble.arrived(session)
        conn.queue.append(request)
        if not conn.busy:
            self._go_on(conn)

    def _go_on(self, conn: Connection) -> None:
        ensemble = self.ensemble
        conn.busy = ensemble.frozen_until > ensemble.world.now
        if conn.busy:
            ensemble.world.at(ensemble.frozen_until, self._go_on, conn)
        session = conn.session
        while conn.queue and not conn.busy and session.conn is conn and (not session.dead or self.isolated):
            self._serve(conn, conn.queue.popleft())

    def _serve(self, conn: Connection, request: Request) -> None:
        ensemble = self.ensemble
        if request.kind in _READS:
            self._answer(conn, request, self._read(conn, request))
            return
        conn.busy = True
        if self is ensemble.leader:
            self._lead(conn, request)
        else:
            ensemble.world.after(ensemble.delay(), self._lead, conn, request)

    def _lead(self, conn: Connection, request: Request) -> None:
        ensemble = self.ensemble
        if ensemble.frozen_until > ensemble.world.now:
            ensemble.world.at(ensemble.frozen_until, self._lead, conn, request)
            return
        if self.isolated:
            if not self.looking:
                self._stuck.append((conn, request))
                conn.client.may_be_deaf()
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

    def _served(self, conn: Connection, request: Request, value: Any) -> None:
        self._answer(conn, request, value)
        self._go_on(conn)

    def _read(self, conn: Connection, request: Request) -> Any:
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

    def _answer(self, conn: Connection, request: Request, value: Any) -> None:
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
        longest = world.chance.random() < 0.5
        self.tick_s = timeout_s / 2 if longest else timeout_s * world.chance.uniform(0.05, 0.5)
        """A session is at least two of the leader's ticks long."""
        self._report_s = self.tick_s / 2
        self._first_report_s = world.chance.random() * self._report_s
        self.servers = [Server(self, number) for number in range(servers)]
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
        """The delay of one message."""
        longest = self.slow_s
        if slowness != 1:
            longest = max(longest, min(_SLOWEST_S, longest * slowness))
        return 0.0001 + self.world.chance.random() * longest

    def lag(self) -> float:
        """The time by which one follower is behind the leader."""
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
        if server.isolated:
            client.process.deliver(
                world.now + self.timeout_s, client.unreachable
            )  # the leader does not confirm the session
            return
        if client.last_zxid > server.zxid:
            client.process.deliver(world.now + self.delay(), client.unreachable)  # it has seen what this one has not
            return
        session = self._sessions.get(client.session_id)
        if client.session_id and (session is None or session.dead):
            client.process.deliver(world.now + self.delay(), client.expired)
            return
        if session is None:
            session = _Session(next(self._numbers), self.timeout_s, world.now)
            self._sessions[session.id] = session
        if session.conn is not None:
            session.conn.server.forget(session.conn)
        conn = session.conn = client.offered = Connection(client, server, session)
        session.noted = session.touched = world.now  # the leader itself opens and continues sessions
        if client.process.paused or not client.speaks:
            self.silent(session)
        else:
            self.heard(session)
        client.process.deliver(world.now + self.delay(), client.established, conn)

    # The leader itself hears only of a session's opening and continuation, of what its own clients send, and of which
    # sessions a follower has heard since its last report; it asks for that twice a tick. It extends a session by its
    # whole timeout from the moment of the report, rounded up to the next tick. A request that a follower passes on
    # extends nothing. Sources: ZooKeeper's `Leader.lead`, `LearnerHandler.run` (PING, REVALIDATE, REQUEST),
    # `LearnerSessionTracker.snapshot`, `ExpiryQueue.update`.

    def arrived(self, session: _Session) -> None:
        """The session's server received something of it."""
        self._report(session)
        session.noted = self.world.now

    def heard(self, session: _Session, *, now: bool = False) -> None:
        """Heartbeats of the session arrive from now on. ``now``: one does at once."""
        conn = session.conn
        if session.dead or conn is None:
            return
        session.speaks = True
        if now:
            self.arrived(session)
        if not conn.server.isolated:
            session.silences += 1

    def silent(self, session: _Session) -> None:
        """No heartbeat of the session arrives from now on."""
        if session.dead:
            return
        self._note_heartbeat(session)
        session.speaks = False
        self._watch(session)

    def unheard(self, server: Server) -> None:
        """The leader hears of no session of the server from now on."""
        for session in self._sessions.values():
            if session.conn is not None and session.conn.server is server and not session.dead:
                self._note_heartbeat(session)
                self._watch(session)

    def heard_again(self, server: Server) -> None:
        """The leader hears of the server's sessions again, and the server of those that ended."""
        self.close_at(server, lambda session: session.dead)
        for session in self._sessions.values():
            if session.conn is not None and session.conn.server is server:
                if session.noted > session.touched:
                    session.noted = self.world.now
                if session.speaks:
                    session.silences += 1
                else:
                    self._watch(session)

    def close_at(self, server: Server, which: Callable[[_Session], bool]) -> None:
        """The server closes connections."""
        for session in self._sessions.values():
            conn = session.conn
            if conn is not None and conn.server is server and which(session):
                server.forget(conn)
                if session.dead:
                    session.conn = None
                conn.reply(conn.client.closed_by_server)

    def _note_heartbeat(self, session: _Session) -> None:
        """A client that has nothing to ask sends a heartbeat within a third of the timeout."""
        now, third_s = self.world.now, session.timeout_s / 3
        self._report(session)
        if session.speaks and session.noted < now - third_s:
            session.touched = max(session.touched, now - 2 * third_s)
            session.noted = now - third_s * self.world.chance.random()
            self._report(session)

    def _report(self, session: _Session) -> None:
        """What the session's server noted becomes known to the leader, if it asked since."""
        if session.noted > session.touched and session.conn is not None and not session.conn.server.isolated:
            reported = self._reported(session.conn.server, session.noted)
            if reported <= self.world.now:
                session.touched = reported

    def _reported(self, server: Server, noted: float) -> float:
        """When the leader learns, or would learn, what a server noted."""
        if server is self.leader:
            return noted
        return self.next_report(noted)

    def next_report(self, after: float) -> float:
        """When followers report next which sessions they have heard."""
        return math.ceil((after - self._first_report_s) / self._report_s) * self._report_s + self._first_report_s

    def _ends(self, session: _Session) -> float:
        """When the session ends if nothing more is heard of it."""
        self._report(session)
        touched, conn = session.touched, session.conn
        if session.noted > touched and conn is not None and not conn.server.isolated:
            touched = self._reported(conn.server, session.noted)
        return (math.floor((touched + session.timeout_s) / self.tick_s) + 1) * self.tick_s

    def _watch(self, session: _Session) -> None:
        session.silences += 1
        self.world.at(self._ends(session), self._expire, session, session.silences)

    def _expire(self, session: _Session, silences: int) -> None:
        if session.silences != silences or session.dead:
            return
        ends = self._ends(session)
        if ends > self.world.now:  # something was still under way
            self.world.at(ends, self._expire, session, silences)
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
        conn = session.conn
        ops = tuple(Op("delete", path) for path in session.ephemerals)
        if ops:
            self.commit(client, session, "multi", ops)
        if conn is not None and not conn.server.isolated:
            session.conn = None
            conn.server.forget(conn)
            if client is None:
                conn.reply(conn.client.closed_by_server)

    def hung_up(self, conn: Connection) -> None:
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
            session = self._sessions[number] = _Session(number, self.timeout_s, world.now + down_s)
            self._watch(session)
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
