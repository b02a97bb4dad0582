"""One change that can be made: looked at, shown, and then made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from wormhole.wire.v1 import admin_pb2

__all__ = ["Step"]


@dataclass(slots=True)
class Step:
    """How the flow would be then (``after``), what history keeps of it, and what makes it (``do``)."""

    what: str
    after: admin_pb2.FlowStatus
    do: Callable[[], Awaitable[None]]
    old: str = ""
    new: str = ""
    notes: list[str] = field(default_factory=list)
