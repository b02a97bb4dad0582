"""What must never happen, looked at with every transaction, assignment and call of a handler."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Final, NamedTuple

from tests.simulation.kept import Target
from tests.simulation.world import Process, World
from tests.simulation.zookeeper import Change, Committed
from tests.simulation.zookeeper_client import VirtualClient
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths

__all__ = ["Checks", "Known"]

_FASTEST: Final = 1.1
"""The fastest clock of a process: it measures a timeout so much too short."""
_NOTICED_S: Final = 0.01
"""After a pause a process goes on for so long before it has read what arrived meanwhile."""


class Known(NamedTuple):
    """What ZooKeeper held at a moment, as far as the checks look at it."""

    at: float
    zxid: int
    owner: Process | None
    session: int
    number: int
    claims: dict[str, int]
    stored: dict[str, tuple[int, int]]


class Checks:
    """``handler_s``: how long a handler is waited for; ``lost_s``: one that is silent for so long is taken for lost.
    ``lease_s``: how long an owner may go on sending when ZooKeeper forgets it.

    ``owner``: the process that owns the log, as ZooKeeper has it. ``stored``: number of the last update before the
    stored datamarker, and the epoch, by shard.

    Once ZooKeeper's data was put back, datamarkers and epochs may be lower, and no process can know which
    subscriber was given a flow since then: handlers of those assignments may run beside others. An update must not
    be passed over all the same. And an owner that has seen a later record than there is must not write it: it would
    go on from what it remembers, over whatever else of that record's time is gone.
    """

    def __init__(
        self,
        world: World,
        paths: Paths,
        application: str,
        group: LogGroup,
        shards: Collection[str],
        *,
        handler_s: float,
        lost_s: float,
        lease_s: float,
    ) -> None:
        self.world = world
        self.owner: Process | None = None
        self.terms = 0
        self.epochs = 0
        self.overlaps = 0
        self.stored = dict.fromkeys(shards, (0, 0))
        self.target = Target(world, shards)
        self.processed = dict.fromkeys(shards, 0)
        """All updates up to this one were processed."""
        self._beyond: dict[str, set[int]] = {shard: set() for shard in shards}
        self._handler_s = handler_s
        self._lost_s = lost_s
        self._lease_s = lease_s
        self._number = 0
        self._markers = f"{paths.markers(application)}/"
        self._flows = f"{paths.flows(application)}/"
        self._log = f"{paths.log(group)}/"
        self._claims: dict[str, int] = {}
        self._session = 0
        self._zxid = 0
        self._raised: dict[tuple[str, int], Process] = {}
        self._acked: set[tuple[str, str, int, int]] = set()
        self._taken: dict[tuple[str, int], tuple[str, str, float]] = {}
        """By shard and epoch: publisher, subscriber, and when."""
        self._forgotten: set[tuple[str, str, int]] = set()
        """Assignments of which ZooKeeper's data knows nothing since it was put back: publisher, shard and epoch."""
        self._writes: dict[str, list[tuple[int, VirtualClient]]] = {shard: [] for shard in shards}
        """The transactions of each datamarker, and the client that asked for each."""
        self._outdated: set[tuple[VirtualClient, str]] = set()
        """Sessions that have seen a later datamarker of a shard than there is."""
        self._learning: dict[Process | None, float] = {}
        """Processes that owned the log when the data was put back, and when each has learned that at the latest."""
        self._running: dict[str, dict[Process, tuple[int, int, float, str]]] = {shard: {} for shard in shards}
        """Handlers at work: update, epoch, since when, as far as others have to wait for it, and whose update it is."""
        self._latest: dict[str, tuple[int, str]] = dict.fromkeys(shards, (0, ""))

    # -- what is written

    def committed(self, committed: Committed) -> None:
        """A transaction took effect."""
        writer = None if committed.client is None else committed.client.process
        self._zxid = committed.zxid
        of_log = False
        for change in committed.changes:
            path = change.path
            if path.startswith(self._markers):
                self._marker(path[len(self._markers) :], change, committed)
            elif path.startswith(self._log):
                self._changed(path[len(self._log) :], change, committed, writer)
                of_log = True
            elif path.startswith(self._flows) and writer is not self.owner:
                self.world.violation(f"{writer} writes a flow record, and {self.owner} owns the log")
        if of_log:
            self._look_at_claims()

    def _changed(self, name: str, change: Change, committed: Committed, writer: Process | None) -> None:
        if name == "owner":
            made = change.kind == "create"
            self.owner, self._session = (writer, committed.session) if made else (None, 0)
            self.world.trace(f"the log is {'nobody' if self.owner is None else self.owner.name}'s")
        elif name.startswith("claims/"):
            if change.kind == "create":
                self._claims[name] = committed.session
            else:
                self._claims.pop(name, None)
        elif name == "term" and writer is not None:
            number = json.loads(change.data)["number"]
            if number <= self._number:
                self.world.violation(f"term {number} after term {self._number}")
            self._number = number
            self.terms += 1

    def _look_at_claims(self) -> None:
        claims = list(self._claims.values())
        if claims != ([] if self.owner is None else [self._session]):
            self.world.violation(
                f"the owner is {self.owner} in session {self._session:#x}, the claims are {self._claims}"
            )

    def snapshot(self) -> Known:
        """What ZooKeeper holds now."""
        claims, stored = dict(self._claims), dict(self.stored)
        return Known(self.world.now, self._zxid, self.owner, self._session, self._number, claims, stored)

    def put_back(self, known: Known, sessions: Collection[int], learned_s: float) -> None:
        """ZooKeeper's data becomes what it was then. ``sessions`` may be continued; ``learned_s``: how long the owner
        may take to find out that one of these has no claim any more.
        """
        continued = self._session in sessions and self._session != known.session
        self._learning[self.owner] = self.world.now + (learned_s if continued else self._lease_s)
        self.owner, self._session, self._number, self._zxid = known.owner, known.session, known.number, known.zxid
        self._claims, self.stored = dict(known.claims), dict(known.stored)
        for shard, (_, restored) in known.stored.items():
            for of_shard, epoch in [one for one in self._raised if one[0] == shard and one[1] > restored]:
                self._forgotten.add((self._raised.pop((of_shard, epoch)).name, shard, epoch))
            for of_shard, epoch in [one for one in self._taken if one[0] == shard]:
                publisher, _, at = self._taken[of_shard, epoch]
                if at >= known.at:
                    self._forgotten.add((publisher, shard, epoch))
                if epoch > restored:
                    del self._taken[of_shard, epoch]
            latest, holder = self._latest[shard]
            self._latest[shard] = min(latest, restored), holder
            undone = [(zxid, client) for zxid, client in self._writes[shard] if zxid > known.zxid]
            self._outdated |= {(client, shard) for zxid, client in undone if client.confirmed >= zxid}
            del self._writes[shard][len(self._writes[shard]) - len(undone) :]

    def _marker(self, shard: str, change: Change, committed: Committed) -> None:
        if shard not in self.stored or not change.data:
            return
        client = committed.client
        writer = None if client is None else client.process
        record = json.loads(change.data)
        number, epoch = int(record["place"].partition(" ")[0].rpartition("/")[2]), record["epoch"]
        before, epoch_before = self.stored[shard]
        self.stored[shard] = number, epoch
        world = self.world
        world.trace(f"stored: {shard} at {number} in epoch {epoch} by {writer and writer.name}")
        if writer is None or writer is not self.owner:
            world.violation(f"{writer} writes the datamarker of {shard}, and {self.owner} owns the log")
        elif self.target.moved(shard, record.get("move", 0), number):
            world.trace(f"{shard} is moved to {number} in epoch {epoch}")
            self._raised[shard, epoch] = writer
            self.epochs += 1
            self.processed[shard] = number
            self._beyond[shard].clear()
        elif client is not None and (client, shard) in self._outdated:
            world.violation(
                f"{writer} goes on from {shard} at {before} in epoch {epoch_before}, and has seen a later datamarker "
                "than ZooKeeper was put back to"
            )
        elif number < before or epoch < epoch_before:
            world.violation(f"the datamarker of {shard} goes from {before} in {epoch_before} to {number} in {epoch}")
        elif epoch > epoch_before:
            self._raised[shard, epoch] = writer
            self.epochs += 1
            if number != before and not self.target.holds(shard, number):
                world.violation(f"the datamarker of {shard} goes from {before} to {number} as its epoch is raised")
        elif number != before and self._raised.get((shard, epoch)) is not writer:
            world.violation(f"{writer} moves {shard} in epoch {epoch} of {self._raised.get((shard, epoch))}")
        elif number != before and (writer.name, shard, epoch, number) not in self._acked:
            world.violation(f"{shard} is stored at {number} in epoch {epoch}, in which no subscriber acknowledged that")
        if number > self.processed[shard]:
            world.violation(
                f"the datamarker of {shard} is {number}, and updates are processed up to {self.processed[shard]}"
            )
        if client is not None:
            self._writes[shard].append((committed.zxid, client))

    # -- what is sent

    def sent(self, publisher: Process, shard: str, epoch: int) -> None:
        """A publisher assigns a flow, or sends something of it."""
        if publisher is not self.owner and self.world.now > self._learning.get(publisher, 0.0):
            self.world.violation(f"{publisher} sends {shard} in epoch {epoch}, and {self.owner} owns the log")

    def taken(self, publisher: Process, subscriber: Process, shard: str, epoch: int) -> None:
        """A subscriber takes a flow."""
        world, raised = self.world, self._raised.get((shard, epoch))
        world.trace(f"{subscriber.name} takes {shard} in epoch {epoch} from {publisher.name}")
        if raised is not publisher:
            if (publisher.name, shard, epoch) not in self._forgotten:
                world.violation(f"{publisher} assigns {shard} in epoch {epoch}, which {raised} raised")
            return
        before = self._taken.setdefault((shard, epoch), (publisher.name, subscriber.name, world.now))
        if before[:2] != (publisher.name, subscriber.name):
            world.violation(f"epoch {epoch} of {shard} is at {before} and at {(publisher, subscriber.name)}")

    def acked(self, publisher: str, shard: str, epoch: int, number: int) -> None:
        """A subscriber acknowledges the updates up to this one."""
        self._acked.add((publisher, shard, epoch, number))

    # -- what is processed

    def begins(self, subscriber: Process, publisher: str, shard: str, epoch: int, update: int) -> None:
        """A handler is called with an update that the publisher of that name sent."""
        world, now = self.world, self.world.now
        world.trace(f"{subscriber.name} handles update {update} of {shard} in epoch {epoch}")
        # One that was stopped, and taken for lost meanwhile, goes on where it was: only then it learns what happened.
        began, ended = subscriber.last_pause
        stopped = now - ended < _NOTICED_S and ended - began > self._lost_s
        forgotten = (publisher, shard, epoch) in self._forgotten
        for other, (running, its_epoch, since, its_publisher) in self._running[shard].items():
            if other is subscriber:
                continue
            unknown = forgotten or (its_publisher, shard, its_epoch) in self._forgotten
            if stopped or unknown or self._outlived(since):
                self.overlaps += 1
            else:
                world.violation(
                    f"{subscriber.name} handles update {update} of {shard} in epoch {epoch} while {other.name} handles "
                    f"{running} in epoch {its_epoch} since {since:.3f}"
                )
        latest, holder = self._latest[shard]
        if epoch < latest and not stopped and not forgotten:
            world.violation(
                f"{subscriber.name} handles update {update} of {shard} in epoch {epoch}, and {holder} began {latest}"
            )
        if epoch > latest and not forgotten:
            self._latest[shard] = epoch, subscriber.name
        if update > self.processed[shard] + 1 and not self.target.was_moved(shard):
            world.violation(f"{subscriber.name} handles update {update} of {shard} after {self.processed[shard]}")
        self._running[shard][subscriber] = update, epoch, -math.inf if stopped else now, publisher

    def _outlived(self, since: float) -> bool:
        """Whether a handler that has run since then has timed out."""
        return self.world.now - since >= self._handler_s / _FASTEST

    def ends(self, subscriber: Process, shard: str, update: int | None) -> None:
        """A handler returned from the update; ``None``: it died with its process."""
        self._running[shard].pop(subscriber, None)
        if update is not None:
            beyond = self._beyond[shard]
            beyond.add(update)
            while self.processed[shard] + 1 in beyond:
                self.processed[shard] += 1
                beyond.discard(self.processed[shard])
