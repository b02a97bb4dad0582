"""The port for the answers of one flow. It is all that the flow's worker knows of the stream."""

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
    """What an application can do in addition to processing updates.

    ``verifies``: return the keys and content of its rows; ``takes_ranges``: remove rows of a range that were not sent.
    """

    verifies: bool = False
    takes_ranges: bool = False


NO_ABILITIES: Final = Abilities()


@dataclass(slots=True, frozen=True)
class Held:
    """The epoch of a shard that this process holds. ``by``: the publisher that assigned it, by its own name.

    ``contested``: whether that is another publisher than the refused one, and is connected.
    """

    epoch: int
    by: str = ""
    contested: bool = False


@dataclass(slots=True, eq=False)
class PushingPeer:
    """The publisher at the other end of a stream. It may be kept without keeping the stream.

    ``name``: its own name; ``dataset`` and ``log``: what it reads; ``owner``: the lock under which it serves
    (``Hello.owner``), empty if that is not known; ``names``: the names of its certificate, none without TLS;
    ``connected``: whether the stream is open; ``left``: whether it ended the stream because it stops.
    """

    name: str = ""
    dataset: str = ""
    log: str = ""
    owner: str = ""
    names: Collection[str] = ()
    connected: bool = True
    left: bool = False

    def differs(self, other: PushingPeer) -> bool:
        """Whether these are two publishers; false if one of them did not name its lock."""
        return bool(self.owner and other.owner) and self.owner != other.owner


class FlowPort(Protocol):
    """The port for a flow's answers. The methods do nothing once the stream no longer has the flow."""

    @property
    def peer(self) -> PushingPeer:
        """The publisher that assigned the flow."""
        ...

    def accept(self, credit: int, have: Datamarker | None, counts: Counts, move: int) -> None:
        """Accept the flow, so that batches may be sent. ``counts``: reported with every answer from now on. ``move``:
        of the application when it stored ``have``; 0: unknown."""
        ...

    def progress(self, number: int | None) -> None:
        """Callbacks up to this batch returned; ``None``: only the counts changed."""
        ...

    def ack(self, marker: Datamarker) -> bool:
        """Everything before the marker was processed. Returns false if the stream or the epoch is over."""
        ...

    def release(self, marker: Datamarker | None) -> None:
        """Release the flow."""
        ...

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None) -> None:
        """The flow cannot continue at this subscriber. ``held``: the epoch of the shard that this process holds
        instead."""
        ...

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have an update stored; :meth:`~subscriber_sdk.work.flow_worker.FlowWorker.park_answered` gets the answer."""
        ...

    def verified(self, verified: push_pb2.Verified) -> None:
        """Report the findings about a table since the last such report."""
        ...

    def decide_loss(self, *, proceed: bool) -> None:
        """Answer whether the flow continues after a gap."""
        ...

    def refuse(self, error: ProtocolError) -> None:
        """End the stream, because the publisher broke the protocol."""
        ...

    def hold(self, size: int, what: str) -> Callable[[], None]:
        """Count ``size`` bytes that this publisher makes the process keep, for ``what``, until the result is called.
        Raises :class:`~wormhole.model.errors.ProtocolError` if that is too much.
        """
        ...

    def schema(self, id_: int) -> Schema:
        """A schema of the stream. Raises ``KeyError``."""
        ...
