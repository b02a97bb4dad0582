"""The settings with which a relay is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DECODER", "RelayIdentity", "RelaySettings"]

DECODER: Final = 1
"""Incremented when sources decode the same log to other updates than in an earlier release."""


@dataclass(frozen=True, slots=True)
class RelayIdentity:
    """The settings that determine which updates a source decodes from a log, and how they are written. Records of
    different identities are never mixed.

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
    """The settings of a relay. ``mode``: with ``cache`` the datastore keeps its log as if it had no relay. With
    ``hold`` the datastore keeps at most ``slot_budget`` bytes of log while the relay is below its budget. With ``off``
    nothing is recorded, and existing records are read until no flow needs them. ``budget``: the most bytes of the relay
    on disk. ``on_full``: what happens in ``hold`` when the relay is full and its oldest records are still needed.
    """

    mode: Literal["cache", "hold", "off"]
    budget: int
    slot_budget: int = 0
    on_full: Literal["lose", "keep_slot"] = "lose"
    compress: bool = True
