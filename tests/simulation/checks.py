"""What must never happen, looked at with every transaction, assignment and call of a handler."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Final

from tests.simulation.world import Process, World
from tests.simulation.zookeeper import Change, Committed
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths

__all__ = ["Checks"]

_FASTEST: Final = 1.1
"""The fastest clock of a process: it measures a timeout so much too short."""
_NOTICED_S: Final = 0.01
"""After a pause a process goes on for so long before it has read what arrived meanwhile."""


class Checks:
    """``handler_s``: how long a handler is waited for; ``lost_s``: one that is silent for so long is taken for lost.
    ``lease_s``: how long an owner may go on sending when ZooKeeper forgets it.

    ``owner``: the process that owns the log, as ZooKeeper has it. ``stored``: number of the last update before the
    stored datamarker, and the epoch, by shard.
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
        self.former_terms: list[bytes] = []
        """What the node of the terms has held."""
        self.epochs = 0
        self.overlaps = 0
        self.stored = dict.fromkeys(shards, (0, 0))
        self.processed = dict.fromkeys(shards, 0)
        """All updates up to this one were processed by somebody."""
        self._beyond: dict[str, set[int]] = {shard: set() for shard in shards}
        self._handler_s = handler_s
        self._lost_s = lost_s
        self._lease_s = lease_s
        self._unleased_until = 0.0
        self._number = 0
        self._markers = f"{paths.markers(application)}/"
        self._flows = f"{paths.flows(application)}/"
        self._log = f"{paths.log(group)}/"
        self._claims: dict[str, int] = {}
        self._session = 0
        self._raised: dict[tuple[str, int], Process] = {}
        self._acked: set[tuple[str, int, int]] = set()
        self._taken: dict[tuple[str, int], tuple[Process, str]] = {}
        self._running: dict[str, dict[Process, tuple[int, int, float]]] = {shard: {} for shard in shards}
        """Handlers at work: update, epoch, and since when, as far as others have to wait for it."""
        self._latest: dict[str, tuple[int, str]] = dict.fromkeys(shards, (0, ""))

    # -- what is written

    def committed(self, committed: Committed) -> None:
        """A transaction took effect."""
        writer = None if committed.client is None else committed.client.process
        of_log = False
        for change in committed.changes:
            path = change.path
            if path.startswith(self._markers):
                self._marker(path[len(self._markers) :], change, writer)
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
            self.former_terms.append(change.data)
        elif name == "term":  # an older one was restored
            self._number = json.loads(change.data)["number"] if change.data else 0
            self._unleased_until = self.world.now + self._lease_s

    def _look_at_claims(self) -> None:
        claims = list(self._claims.values())
        if claims != ([] if self.owner is None else [self._session]):
            self.world.violation(
                f"the owner is {self.owner} in session {self._session:#x}, the claims are {self._claims}"
            )

    def _marker(self, shard: str, change: Change, writer: Process | None) -> None:
        if shard not in self.stored or not change.data:
            return
        record = json.loads(change.data)
        number, epoch = int(record["place"].partition(" ")[0].rpartition("/")[2]), record["epoch"]
        before, epoch_before = self.stored[shard]
        self.stored[shard] = number, epoch
        world = self.world
        world.trace(f"stored: {shard} at {number} in epoch {epoch} by {writer and writer.name}")
        if writer is None or writer is not self.owner:
            world.violation(f"{writer} writes the datamarker of {shard}, and {self.owner} owns the log")
        elif number < before or epoch < epoch_before:
            world.violation(f"the datamarker of {shard} goes from {before} in {epoch_before} to {number} in {epoch}")
        elif epoch > epoch_before:
            self._raised[shard, epoch] = writer
            self.epochs += 1
            if number != before:
                world.violation(f"the datamarker of {shard} goes from {before} to {number} as its epoch is raised")
        elif number != before and self._raised.get((shard, epoch)) is not writer:
            world.violation(f"{writer} moves {shard} in epoch {epoch} of {self._raised.get((shard, epoch))}")
        elif number != before and (shard, epoch, number) not in self._acked:
            world.violation(f"{shard} is stored at {number} in epoch {epoch}, in which nobody acknowledged that")
        if number > self.processed[shard]:
            world.violation(
                f"the datamarker of {shard} is {number}, and updates are processed up to {self.processed[shard]}"
            )

    # -- what is sent

    def sent(self, publisher: Process, shard: str, epoch: int) -> None:
        """A publisher assigns a flow, or sends something of it."""
        if publisher is not self.owner and self.world.now > self._unleased_until:
            self.world.violation(f"{publisher} sends {shard} in epoch {epoch}, and {self.owner} owns the log")

    def taken(self, publisher: Process, subscriber: Process, shard: str, epoch: int) -> None:
        """A subscriber takes a flow."""
        world, raised = self.world, self._raised.get((shard, epoch))
        world.trace(f"{subscriber.name} takes {shard} in epoch {epoch} from {publisher.name}")
        if raised is not publisher:
            world.violation(f"{publisher} assigns {shard} in epoch {epoch}, which {raised} raised")
        before = self._taken.setdefault((shard, epoch), (publisher, subscriber.name))
        if before != (publisher, subscriber.name):
            world.violation(f"epoch {epoch} of {shard} is at {before} and at {(publisher, subscriber.name)}")

    def acked(self, shard: str, epoch: int, number: int) -> None:
        """A subscriber acknowledges the updates up to this one."""
        self._acked.add((shard, epoch, number))

    # -- what is processed

    def begins(self, subscriber: Process, shard: str, epoch: int, update: int) -> None:
        """A handler is called with an update."""
        world, now = self.world, self.world.now
        world.trace(f"{subscriber.name} handles update {update} of {shard} in epoch {epoch}")
        # One that was stopped, and taken for lost meanwhile, goes on where it was: only then it learns what happened.
        began, ended = subscriber.last_pause
        stopped = now - ended < _NOTICED_S and ended - began > self._lost_s
        for other, (running, its_epoch, since) in self._running[shard].items():
            if other is subscriber:
                continue
            if stopped or self._outlived(since):
                self.overlaps += 1
            else:
                world.violation(
                    f"{subscriber.name} handles update {update} of {shard} in epoch {epoch} while {other.name} handles "
                    f"{running} in epoch {its_epoch} since {since:.3f}"
                )
        latest, holder = self._latest[shard]
        if epoch < latest and not stopped:
            world.violation(
                f"{subscriber.name} handles update {update} of {shard} in epoch {epoch}, and {holder} began {latest}"
            )
        if epoch > latest:
            self._latest[shard] = epoch, subscriber.name
        if update > self.processed[shard] + 1:
            world.violation(f"{subscriber.name} handles update {update} of {shard} after {self.processed[shard]}")
        self._running[shard][subscriber] = update, epoch, -math.inf if stopped else now

    def _outlived(self, since: float) -> bool:
        """Whether nobody waits any longer for what has run since then."""
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
