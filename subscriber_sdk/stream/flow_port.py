"""The port for the answers of one flow, by which the flow's worker does not depend on the stream."""

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
    """Optional abilities of an application.

    ``verifies``: it returns the keys and content of its rows; ``takes_ranges``: it removes rows that a range lacks.
    """

    verifies: bool = False
    takes_ranges: bool = False


NO_ABILITIES: Final = Abilities()


@dataclass(slots=True, frozen=True)
class Held:
    """The epoch of a shard that this process holds. ``by``: the name of the publisher that assigned this epoch.

    ``contested``: whether this publisher is connected, and is not the publisher whose assignment was refused.
    """

    epoch: int
    by: str = ""
    contested: bool = False


@dataclass(slots=True, eq=False)
class PushingPeer:
    """The publisher at the other end of a stream. The object may outlive the stream.

    ``name``: the publisher's name for itself; ``dataset`` and ``log``: the log that it reads; ``owner``: the lock under
    which it serves (``Hello.owner``), empty if not known; ``names``: the names of its certificate, none without TLS;
    ``connected``: whether the stream is open; ``left``: whether the publisher ended the stream because it stops.
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
        the number of the last move that the application knew when it stored ``have``; 0: unknown."""
        ...

    def progress(self, number: int | None) -> None:
        """Report that callbacks up to batch ``number`` returned; ``None``: only the counts changed."""
        ...

    def ack(self, marker: Datamarker) -> bool:
        """Acknowledge ``marker``: everything before it was processed. Returns false if the stream or epoch is over."""
        ...

    def release(self, marker: Datamarker | None) -> None:
        """Release the flow."""
        ...

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None) -> None:
        """Report that the flow cannot continue at this subscriber. ``held``: the epoch of the shard that this process
        holds instead."""
        ...

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have the publisher store an update. Its answer is passed to
        :meth:`~subscriber_sdk.work.flow_worker.FlowWorker.park_answered`."""
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
        """Charge ``size`` bytes of memory for ``what`` to this publisher. The returned function ends the charge. Raises
        :class:`~wormhole.model.errors.ProtocolError` if the publisher exceeds its budget.
        """
        ...

    def schema(self, id_: int) -> Schema:
        """The schema with this id on the stream. Raises ``KeyError`` if there is none."""
        ...
