"""One change that can be made: looked at, shown, and then made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from publisher.push.flow import PublisherFlow
from wormhole.wire.v1 import admin_pb2

__all__ = ["Changes", "PlannedChange"]


@dataclass(slots=True)
class PlannedChange:
    """How the flow would be then (``after``), what history keeps of it, and what makes it (``do``)."""

    what: str
    after: admin_pb2.FlowStatus
    do: Callable[[], Awaitable[None]]
    old: str = ""
    new: str = ""
    notes: list[str] = field(default_factory=list)


class Changes(Protocol):
    """Changes of one kind. ``verbs``: the requests that ask for them."""

    @property
    def verbs(self) -> tuple[str, ...]: ...

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """What was asked for. Raises :class:`~wormhole.model.errors.WormholeError` where it cannot be done."""
        ...
