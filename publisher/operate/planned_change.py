"""One change that can be made: planned, shown, and then made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from publisher.push.flow import PublisherFlow
from wormhole.wire.v1 import admin_pb2

__all__ = ["Changes", "PlannedChange"]


@dataclass(slots=True)
class PlannedChange:
    """The flow after the change (``after``), the history's entry, and the function that makes the change (``do``)."""

    what: str
    after: admin_pb2.FlowStatus
    do: Callable[[], Awaitable[None]]
    old: str = ""
    new: str = ""
    notes: list[str] = field(default_factory=list)


class Changes(Protocol):
    """Changes of one kind. ``verbs``: the requests for them."""

    @property
    def verbs(self) -> tuple[str, ...]: ...

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """The requested change. Raises :class:`~wormhole.model.errors.WormholeError` if it cannot be made."""
        ...
