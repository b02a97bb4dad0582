"""The metadata by which the task of a mass replay identifies itself to the publisher that forwards its stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from wormhole.model.errors import ProtocolError

__all__ = ["MOST_ASSIGNED_BYTES", "MOST_FORWARDED_BYTES", "Forwarding"]

MOST_FORWARDED_BYTES: Final = 384 << 10
"""Limit in bytes of a task's message that a publisher forwards, except for the assignment."""

MOST_ASSIGNED_BYTES: Final = 512 << 10
"""Limit in bytes of the assignment. A publisher takes no larger request."""

_LONGEST: Final = 1024
_NAMES: Final = ("wormhole-flow-bin", "wormhole-replay-bin", "wormhole-ticket-bin", "wormhole-epoch-bin")


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The flow, the replay that has it, its ticket, and the epoch in which the task opened it."""

    flow: str
    replay: str
    ticket: str
    epoch: int

    def to_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The metadata of the call."""
        texts = (self.flow, self.replay, self.ticket, str(self.epoch))
        return tuple((name, text.encode()) for name, text in zip(_NAMES, texts, strict=True))

    @classmethod
    def from_metadata(cls, metadata: Iterable[tuple[str, Any]]) -> Self:
        """Inverse of :meth:`to_metadata`. Raises :class:`~wormhole.model.errors.ProtocolError`."""
        given = {name: value for name, value in metadata if name in _NAMES and isinstance(value, bytes)}
        try:
            flow, replay, ticket, epoch = (given[name][:_LONGEST].decode() for name in _NAMES)
            return cls(flow, replay, ticket, int(epoch))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"the metadata of a replay's task is wrong: {error}") from None
