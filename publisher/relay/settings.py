"""The settings with which a relay is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DECODER", "RelayIdentity", "RelaySettings"]

DECODER: Final = 1
"""Incremented when sources make other updates of the same log than in an earlier release."""


@dataclass(frozen=True, slots=True)
class RelayIdentity:
    """Everything that determines which updates a source makes of a log, and how they are written. Records of different
    identities are never mixed.

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
    """``mode``: with ``cache`` the datastore keeps its log as before. With ``hold`` it keeps at most ``slot_budget``
    bytes of it while the relay is below its budget. With ``off`` nothing is recorded, and existing records are read
    until no flow needs them. ``budget``: the relay's bytes on disk. ``on_full``: what happens in ``hold`` when the
    relay is full and its oldest records are still needed.
    """

    mode: Literal["cache", "hold", "off"]
    budget: int
    slot_budget: int = 0
    on_full: Literal["lose", "keep_slot"] = "lose"
    compress: bool = True
