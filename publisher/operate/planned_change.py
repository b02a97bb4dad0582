"""A planned change, which is shown to the operator before it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from publisher.push.flow import PublisherFlow
from wormhole.wire.v1 import admin_pb2

__all__ = ["Changes", "PlannedChange"]


@dataclass(slots=True)
class PlannedChange:
    """A change that can be made. ``after``: the flow after the change; ``do``: makes the change. The other attributes
    are for the history and the operator."""

    what: str
    after: admin_pb2.FlowStatus
    do: Callable[[], Awaitable[None]]
    old: str = ""
    new: str = ""
    notes: list[str] = field(default_factory=list)


class Changes(Protocol):
    """Changes of one kind. ``verbs``: the names of the requests that ask for them."""

    @property
    def verbs(self) -> tuple[str, ...]: ...

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """The plan of the request. Raises :class:`~wormhole.model.errors.WormholeError` for an impossible change."""
        ...
