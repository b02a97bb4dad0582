"""A record: what a store without tables receives for an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from wormhole.wire.update import Update

__all__ = ["Envelope", "Record"]


class Record(NamedTuple):
    """One record.

    ``id``: the same at every delivery of the same record, and that of no other record of the log: ``Update.id``, with
    ``/1``, ``/2`` and so on behind it for further records of one update. ``update_id``: that of its update. ``table``:
    the table's name in updates. ``key``: the document of the row's key; empty for an operation on a whole table, and
    for a row without a key. ``value``: the document; ``None``: the store has no longer a record with this key (a
    tombstone).
    """

    id: str
    update_id: str
    table: str
    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        """Bytes that the record takes in memory, about."""
        return 200 + len(self.key) + len(self.value or b"")


class Envelope(Protocol):
    """Makes records of updates. Pure: the same update makes the same records."""

    def records(self, update: Update) -> Sequence[Record]:
        """The records of one update, in order; none for an update that the envelope has no form for."""
        ...
