"""Where the answers of one flow go: all that its worker knows of the stream."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from subscriber_sdk.stream.counts import Counts
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import Parcel, UpdatePlace
from wormhole.wire.v1 import push_pb2

__all__ = ["NO_ABILITIES", "Abilities", "FlowPort", "Held", "PushingPeer"]


@dataclass(slots=True, frozen=True)
class Abilities:
    """What an application can do beside taking updates.

    ``verifies``: say which rows it holds, and what is in them; ``takes_ranges``: remove rows that a range was sent
    without.
    """

    verifies: bool = False
    takes_ranges: bool = False


NO_ABILITIES: Final = Abilities()


@dataclass(slots=True, frozen=True)
class Held:
    """Which epoch of a shard this process holds. ``by``: the publisher that assigned it, as it named itself.

    ``contested``: that is another publisher than the one that is refused, and it is connected.
    """

    epoch: int
    by: str = ""
    contested: bool = False


@dataclass(slots=True, eq=False)
class PushingPeer:
    """The publisher at the other end of a stream. What remembers it keeps nothing else of the stream.

    ``name``: as it named itself; ``owner``: the lock under which it serves (``Hello.owner``), empty where that is not
    known; ``names``: of its certificate, none without TLS; ``connected``: whether the stream is open.
    """

    name: str = ""
    owner: str = ""
    names: Collection[str] = ()
    connected: bool = True

    def differs(self, other: PushingPeer) -> bool:
        """Whether these are two publishers; false if one of them did not name its lock."""
        return bool(self.owner and other.owner) and self.owner != other.owner


class FlowPort(Protocol):
    """Where a flow's answers go. Every method does nothing once the flow is not the stream's any more."""

    @property
    def peer(self) -> PushingPeer:
        """The publisher that assigned the flow."""
        ...

    def accept(self, credit: int, have: Datamarker | None, counts: Counts) -> None:
        """Take the flow; batches may come. ``counts``: reported with every answer from here on."""
        ...

    def progress(self, number: int | None) -> None:
        """Callbacks up to this batch returned; ``None``: only what is counted changed."""
        ...

    def ack(self, marker: Datamarker) -> None:
        """Everything before the marker was processed."""
        ...

    def release(self, marker: Datamarker | None) -> None:
        """Give the flow back."""
        ...

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None) -> None:
        """The flow cannot continue here. ``held``: which epoch of the shard does instead."""
        ...

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have an update stored; :meth:`~subscriber_sdk.work.flow_worker.FlowWorker.park_answered` gets the answer."""
        ...

    def verified(self, verified: push_pb2.Verified) -> None:
        """What comparing a table found since the last of these."""
        ...

    def decide_loss(self, *, proceed: bool) -> None:
        """Whether the flow continues after a gap."""
        ...

    def refuse(self, error: ProtocolError) -> None:
        """The publisher broke the protocol: end its stream."""
        ...

    def hold(self, size: int, what: str) -> Callable[[], None]:
        """Count ``size`` bytes that this publisher makes the process keep, for ``what``, until the result is called.
        Raises :class:`~wormhole.model.errors.ProtocolError` when that is too much.
        """
        ...

    def schema(self, id_: int) -> Schema:
        """A schema of the stream. Raises ``KeyError``."""
        ...
