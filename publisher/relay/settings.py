"""What a relay is opened with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DECODER", "RelayIdentity", "RelaySettings"]

DECODER: Final = 1
"""Counted up when the updates that sources make of the same log are no longer those of an earlier release."""


@dataclass(frozen=True, slots=True)
class RelayIdentity:
    """What decides which updates a source makes of a log, and how they are written: records of one identity are never
    mixed with those of another.

    ``log``: its name; ``kind``: the scheme of its source; ``sharding``: as text; ``tables``: the settings that leave
    tables out, as text; ``decoder``: see :data:`DECODER`.
    """

    log: str
    kind: str
    sharding: str
    max_update_bytes: int
    tables: str
    decoder: int = DECODER


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """``mode``: ``cache``, the datastore keeps its log as ever, or ``hold``, it keeps ``slot_budget`` bytes of it at
    most while the relay has room; ``off``: nothing is recorded, and what was is read until nobody needs it.
    ``budget``: bytes on disk of the relay. ``on_full``: what happens in ``hold`` when the oldest of it is still needed
    and there is no more room.
    """

    mode: Literal["cache", "hold", "off"]
    budget: int
    slot_budget: int = 0
    on_full: Literal["lose", "keep_slot"] = "lose"
    compress: bool = True
