"""A record: what a store without tables receives for an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from wormhole.model.errors import Fatal
from wormhole.wire.update import Update

__all__ = ["Envelope", "NoForm", "Record"]


class NoForm(Fatal):
    """The envelope has no form for one update. It is parked, or its flow halts."""

    code: str = "record-refused"

    def __init__(self, update: Update, why: str) -> None:
        super().__init__(
            f"no record for update {update.id} of {update.table}: {why}",
            hint='write envelope = "wormhole", or leave such updates out with the application\'s `where`',
        )


class Record(NamedTuple):
    """One record.

    ``id``: the same at every delivery of the same record, and that of no other record of the log: ``Update.id``, with
    ``/1``, ``/2`` and so on behind it for further records of one update. ``update_id``: that of its update. ``table``:
    the table's name in updates. ``key``: the document of the row's key; empty for an operation on a whole table, and
    for a row without a key. ``value``: the document; ``None``: the store has no longer a record with this key (a
    tombstone). ``old_key``: that of the row's key before a change of the key, if this record also stands for its end;
    else empty. ``everywhere``: whether it is of a TRUNCATE or a range of keys, so that a store with partitions needs it
    in each.
    """

    id: str
    update_id: str
    table: str
    key: bytes
    value: bytes | None
    old_key: bytes = b""
    everywhere: bool = False

    @property
    def size(self) -> int:
        """Bytes that the record takes in memory, about."""
        return 200 + len(self.key) + len(self.value or b"")


class Envelope(Protocol):
    """Makes records of updates. Pure: the same update makes the same records."""

    def records(self, update: Update) -> Sequence[Record]:
        """The records of one update, in order. Raises :class:`NoForm`."""
        ...
