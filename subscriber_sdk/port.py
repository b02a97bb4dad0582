"""Where the answers of one flow go: all that its worker knows of the stream."""

from __future__ import annotations

from typing import Protocol

from subscriber_sdk.counts import Counts
from wormhole.dead_letters import Parcel, UpdatePlace
from wormhole.errors import ProtocolError
from wormhole.position import Datamarker
from wormhole.schema import Schema
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowPort"]


class FlowPort(Protocol):
    """Where a flow's answers go. Every method does nothing once the flow is not the stream's any more."""

    def accept(self, credit: int, have: Datamarker | None, counts: Counts | None = None) -> None:
        """Take the flow; batches may come. ``counts``: told of with every answer from here on."""
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

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str) -> None:
        """The flow cannot go on here."""
        ...

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have an update stored; :meth:`~subscriber_sdk.dispatch.FlowWorker.park_answered` answers."""
        ...

    def decide_loss(self, *, proceed: bool) -> None:
        """Whether the flow goes on after a gap."""
        ...

    def refuse(self, error: ProtocolError) -> None:
        """The publisher broke the protocol: end its stream."""
        ...

    def schema(self, id_: int) -> Schema:
        """A schema of the stream. Raises ``KeyError``."""
        ...
