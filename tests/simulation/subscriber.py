"""A virtual subscriber. It follows the rules of ``subscriber_sdk``: which assignments it takes, in what order it works,
what it acknowledges and when it releases.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, cast

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import KazooState

from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import Held, PushingPeer
from subscriber_sdk.subscriber import NoticeKind, ShardNotice
from subscriber_sdk.transactional.marker_row import MarkerRow
from subscriber_sdk.work.flow_worker import _kept
from subscriber_sdk.work.shards import _Shard
from tests.simulation.attaching import VirtualDialler
from tests.simulation.checks import Checks
from tests.simulation.network import End, Network
from tests.simulation.world import Process, World
from tests.simulation.zookeeper import Ensemble
from tests.simulation.zookeeper_client import Result, VirtualClient
from wormhole.coordination.port import SubscriberInfo
from wormhole.coordination.records import Paths, flow_from_json, subscriber_to_json
from wormhole.model.errors import EpochRefused
from wormhole.model.position import Datamarker, LastAck
from wormhole.push.attaching import Attaching

__all__ = ["Subscriber"]

_AGAIN_S: Final = 0.25
_PATIENCE_S: Final = 5.0


class _Port:
    """One flow on a line: where its answers go. ``open``: the line has it in this epoch."""

    def __init__(self, line: _Line, number: int, epoch: int) -> None:
        self.line, self.number, self.epoch = line, number, epoch

    @property
    def open(self) -> bool:
        return self.line.end.open and self.line.epochs.get(self.number) == self.epoch

    def answer(self, kind: str, *what: Any) -> None:
        if self.open:
            if kind != "acked":
                world = self.line.end.process.world
                world.trace(f"{self.line.end.process.name} {kind} epoch {self.epoch} of {self.line.peer.name}")
            if kind in ("released", "failed"):
                del self.line.epochs[self.number]
            self.line.end.send(kind, self.number, *what)


class _Work:
    """One epoch of a flow at work. ``ending``: why nothing new is begun."""

    def __init__(self, subscriber: Subscriber, port: _Port, assigned: Assigned, before: _Work | None) -> None:
        self.port, self.shard, self.epoch = port, assigned.shard, assigned.epoch
        self._assigned = assigned
        self._row: MarkerRow | None = None
        self._effects: list[int] = []
        """Updates of the open transaction of an application that keeps its datamarker. It began with ``_row``."""
        self.publisher = port.line.peer.name
        self.ending = ""
        self.ended = False
        self.when_ended: list[_Port] = []
        """Assignments that were not taken: they are released then."""
        self._subscriber = subscriber
        self._items: deque[int | Datamarker] = deque()
        self._running: int | None = None
        self._after: _Work | None = None
        self._opened = False
        if before is not None and not before.ended:
            before._after = self
        else:
            self._open()

    def _open(self) -> None:
        self._opened = True
        if self.ending:
            self._close()
        elif self._subscriber.keeps:
            self._open_kept()
        else:
            self.port.answer("accepted", None, 0)

    def _open_kept(self) -> None:
        given, target = self._assigned, self._subscriber.checks.target
        notice = ShardNotice(
            NoticeKind.ASSIGNED, given.shard, given.epoch, given.marker, "", given.rewound, given.move,
            given.acknowledged, given.last_ack,
        )  # fmt: skip
        try:
            have, move = _kept(target.assigned(notice), given)
        except EpochRefused as refused:
            self.port.answer("failed", "stale", "its target is in a later epoch", Held(refused.held_epoch))
            self.end("refused")
            return
        self._row = target.rows[self.shard]
        if have is not None:
            self._subscriber.checks.acked(self.publisher, self.shard, self.epoch, have.order.offset)
        self.port.answer("accepted", have, move)

    def feed(self, item: int | Datamarker) -> None:
        """An update by its number, or a datamarker."""
        if not self.ending:
            self._items.append(item)
            self._go_on()

    def end(self, ending: str) -> None:
        """Nothing new is begun; what runs may finish."""
        if not self.ending:
            self.ending = ending
            if self._opened and self._running is None:
                self._close()

    def _go_on(self) -> None:
        while self._running is None and not self.ended:
            if self.ending:
                self._close()
                return
            if not self._items:
                return
            item = self._items.popleft()
            if isinstance(item, Datamarker):
                self._acknowledge(item)
            else:
                self._call(item)

    def _acknowledge(self, marker: Datamarker) -> None:
        if self._row is not None:
            self._row = self._subscriber.checks.target.commit(self.shard, self._row, marker, self._effects)
            self._effects = []
            if self._row is None:
                self.port.answer("failed", "resend", "another one has the shard", Held(0))
                self.end("fenced")
                return
        self._subscriber.checks.acked(self.publisher, self.shard, self.epoch, marker.order.offset)
        self.port.answer("acked", marker)

    def _call(self, update: int) -> None:
        subscriber = self._subscriber
        self._running = update
        subscriber.checks.begins(subscriber.process, self.publisher, self.shard, self.epoch, update)
        subscriber.process.deliver(subscriber.world.now + subscriber.handler_s(), self._returned)

    def _returned(self) -> None:
        subscriber, update, self._running = self._subscriber, self._running, None
        subscriber.checks.ends(subscriber.process, self.shard, update)
        if update is not None:
            self._effects.append(update)
        self._go_on()

    def die(self) -> None:
        """Its process ended."""
        if self._running is not None:
            self._subscriber.checks.ends(self._subscriber.process, self.shard, None)

    def _close(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self.ending in ("revoked", "leaving"):
            if self._items and isinstance(self._items[0], Datamarker):
                self._acknowledge(self._items[0])
            self.port.answer("released")
        for port in self.when_ended:
            port.answer("released")
        self._subscriber.work_ended(self)
        if self._after is not None:
            self._after._open()


class _Line:
    """The stream of one publisher. ``epochs``: of the flows that it has here, by number."""

    def __init__(
        self, subscriber: Subscriber, end: End, peer: PushingPeer, dialler: VirtualDialler | None = None
    ) -> None:
        self.end, self.peer, self._dialler = end, peer, dialler
        self.epochs: dict[int, int] = {}
        self.works: dict[int, _Work] = {}
        self._subscriber = subscriber

    def received(self, end: End, message: tuple[Any, ...]) -> None:
        kind, number, *rest = message
        if kind == "assign":
            self.epochs[number] = rest[0]
            self._subscriber.assigned(self, number, *rest)
            return
        work = self.works.get(number)
        if kind in ("update", "marker"):
            if work is not None and work.epoch == rest[0]:
                work.feed(rest[1])
        elif kind == "revoke":
            if work is not None:
                del self.works[number]
                work.end("revoked")
            else:
                self._subscriber.drop(self, number)

    def ended(self, end: End, cause: str) -> None:
        self.peer.connected = False
        self._subscriber.lost(self)
        works, self.works = self.works, {}
        for work in works.values():
            work.end("lost")
        if self._dialler is not None:
            self._dialler.lost()


class Subscriber:
    """``name``: its id. Another process of the same name begins with nothing.

    ``dials``: the addresses of the publishers that it dials; empty: they dial it. One that dials asks ZooKeeper for
    epochs if it has a ``coordinator``.
    """

    def __init__(
        self,
        world: World,
        ensemble: Ensemble,
        network: Network,
        paths: Paths,
        checks: Checks,
        process: Process,
        name: str,
        *,
        dials: tuple[str, ...] = (),
        coordinator: bool = True,
    ) -> None:
        self.world, self.checks, self.process, self.name = world, checks, process, name
        self.calm = False
        self.keeps = False
        """Whether the application keeps its datamarker with its effects."""
        self.busy = 0.0, 0.0
        """Until when a call of a handler takes so many seconds."""
        self._network, self._paths = network, paths
        self._shards: dict[str, _Shard] = {}
        self._works: dict[_Work, None] = {}
        self._lines: dict[_Line, None] = {}
        self._unchecked: dict[tuple[_Line, int], tuple[Assigned, Process, float]] = {}
        self._looking = self._leaving = False
        self.address = f"{process.host}:7000"
        self._info = SubscriberInfo("app", name, self.address, 1.0, process.wall())
        self._at = paths.subscriber("app", name)
        process.noticing.append(self)
        self.client = VirtualClient(ensemble, process, paths)
        self._asks = coordinator
        who = Attaching("app", name, process.name)
        self._diallers = [VirtualDialler(network, process, address, who, self.accepted) for address in dials]
        for dialler in self._diallers:
            dialler.dial()
        if not dials:
            network.listeners[self.address] = self
            self.client.add_listener(self._contact)
        if coordinator:
            self.client.begin()

    @property
    def dials(self) -> bool:
        """Whether it dials publishers."""
        return bool(self._diallers)

    def handler_s(self) -> float:
        """How long the next call of a handler takes."""
        chance = self.world.chance
        until, seconds = self.busy
        if self.world.now < until:
            return seconds
        kind = chance.random()
        if self.calm or kind < 0.80:
            return 0.004 + 0.03 * chance.random()
        if kind < 0.93:
            return 0.05 + 0.2 * chance.random()
        if kind < 0.99:
            return 0.3 + 3.7 * chance.random()
        return 4.5 + 3.0 * chance.random()  # beyond the handler timeout

    # -- its entry

    def _contact(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._announce()

    def _announce(self) -> None:
        if self.client.connected and not self._leaving:
            made = self.client.create_async(self._at, subscriber_to_json(self._info), ephemeral=True, makepath=True)
            made.rawlink(self._announced)

    def _announced(self, result: Result) -> None:
        if result.exception is not None:  # an earlier session or process may still have it: its own is made after that
            self.client.exists_async(self._at).rawlink(self._seen)

    def _seen(self, result: Result) -> None:
        owner = getattr(result.value, "ephemeralOwner", 0)
        if owner != self.client.session_id:
            self.process.deliver(self.world.now + _AGAIN_S, self._announce)

    # -- its lines

    def accepted(self, end: End, hello: Any, dialler: VirtualDialler | None = None) -> _Line:
        line = _Line(self, end, PushingPeer(*hello), dialler)
        self._lines[line] = None
        end.send("welcome", 0)
        return line

    def lost(self, line: _Line) -> None:
        """A line is broken."""
        self._lines.pop(line, None)
        for key in [key for key in self._unchecked if key[0] is line]:
            del self._unchecked[key]

    def drop(self, line: _Line, number: int) -> None:
        """The flow is revoked before it was taken."""
        waited = self._unchecked.pop((line, number), None)
        if waited is not None:
            self._give_back(_Port(line, number, waited[0].epoch), waited[0].shard)

    def _give_back(self, port: _Port, shard: str) -> None:
        known = self._shards.get(shard)
        running = None if known is None else cast("_Work | None", known.worker)
        if running is None:
            port.answer("released")
        else:
            running.when_ended.append(port)

    # -- assignments

    def assigned(
        self, line: _Line, number: int, epoch: int, shard: str, marker: Datamarker, yields: bool, publisher: Process,
        rewound: bool, move: int, acknowledged: bool, last_ack: LastAck | None,
    ) -> None:  # fmt: skip
        """A publisher offers a flow: its epoch has to be recorded."""
        offered = Assigned(
            number, epoch, shard, marker, False, yields=yields, rewound=rewound, move=move,
            acknowledged=acknowledged, last_ack=last_ack,
        )  # fmt: skip
        if not self._asks:
            self._take(line, number, offered, publisher)
            return
        until = self.process.monotonic() + _PATIENCE_S
        self._unchecked[line, number] = (offered, publisher, until)
        if not self._looking:
            self._looking = True
            self._look()

    def _look(self) -> None:
        if not self._unchecked:
            self._looking = False
            return
        waiting = dict(self._unchecked)
        if not self.client.connected:
            self._look_again()
            return
        self.client.sync_async("/")
        shards = sorted({assigned.shard for assigned, _, _ in waiting.values()})
        results = {shard: self.client.get_async(self._paths.flow("app", shard)) for shard in shards}
        results[shards[-1]].rawlink(lambda _: self._found(waiting, results))  # answers come in order

    def _look_again(self) -> None:
        self.process.deliver(self.world.now + _AGAIN_S / self.process.rate, self._look)

    def _found(
        self, waiting: dict[tuple[_Line, int], tuple[Assigned, Process, float]], results: dict[str, Result]
    ) -> None:
        epochs: dict[str, int] = {}
        for shard, result in results.items():
            if isinstance(result.exception, NoNodeError):
                epochs[shard] = 0
            elif isinstance(result.exception, KazooException):
                self._look_again()
                return
            else:
                epochs[shard] = flow_from_json(result.value[0], shard).epoch
        for key, held in waiting.items():
            if self._unchecked.get(key) is not held:
                continue
            line, number = key
            offered, publisher, until = held
            if offered.epoch <= epochs[offered.shard]:
                del self._unchecked[key]
                self._take(line, number, offered, publisher)
            elif self.process.monotonic() >= until:
                del self._unchecked[key]
                _Port(line, number, offered.epoch).answer("failed", "resend", "its epoch is not recorded", Held(0))
        if self._unchecked:
            self._look_again()
        else:
            self._looking = False

    def _take(self, line: _Line, number: int, offered: Assigned, publisher: Process) -> None:
        port = _Port(line, number, offered.epoch)
        if not port.open:
            return
        shard = self._shards.setdefault(offered.shard, _Shard(cast("Any", None)))
        peer = line.peer
        refused = shard.refusal(peer, offered)
        if refused is not None:
            port.answer("failed", "stale", "held in another epoch", refused)
            return
        former, shard.holder, shard.epoch = shard.holder, peer, offered.epoch
        if self._leaving:
            self._give_back(port, offered.shard)
            return
        self.checks.taken(publisher, self.process, offered.shard, offered.epoch)
        before = cast("_Work | None", shard.worker)
        if before is not None:
            before.end("cut")
            if former is not None and peer.differs(former):
                before.port.answer("failed", "stale", "taken", Held(offered.epoch, peer.name, True))
        work = _Work(self, port, offered, before)
        shard.worker = cast("Any", work)
        self._works[work] = None
        line.works[number] = work

    def work_ended(self, work: _Work) -> None:
        """Nothing of an epoch runs any more."""
        self._works.pop(work, None)
        for line in self._lines:
            if line.works.get(work.port.number) is work:
                del line.works[work.port.number]
        shard = self._shards[work.shard]
        if cast("Any", shard.worker) is work:
            shard.worker = None
        if self._leaving and not self._works:
            self._goodbye()

    # -- its end

    def leave(self) -> None:
        """Finish, give every flow back, and end."""
        if self.process.dead or self._leaving or self.process.paused:
            return
        self.world.trace(f"{self.name} leaves")
        self._leaving = True
        for dialler in self._diallers:
            dialler.over = True
        for work in tuple(self._works):
            work.end("leaving")
        if not self._works:
            self._goodbye()

    def _goodbye(self) -> None:
        if self.process.dead:
            return
        for line in tuple(self._lines):
            line.end.send("bye", 0)
        self.client.stop()
        self.process.deliver(self.world.now + 0.05, self.process.kill)

    def paused(self) -> None:
        """See :class:`Process`."""

    def resumed(self) -> None:
        """See :class:`Process`."""

    def killed(self) -> None:
        """Its process ended."""
        for work in self._works:
            work.die()
        self._works.clear()
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
