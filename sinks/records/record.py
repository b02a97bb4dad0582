"""A record: what a store without tables receives for an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from wormhole.model.errors import Fatal
from wormhole.wire.update import Update

__all__ = ["Envelope", "NoForm", "Record"]


class NoForm(Fatal):
    """The envelope cannot represent one update. The update is parked, or its flow halts."""

    code: str = "record-refused"

    def __init__(self, update: Update, why: str) -> None:
        super().__init__(
            f"no record for update {update.id} of {update.table}: {why}",
            hint='write envelope = "wormhole", or leave such updates out with the application\'s `where`',
        )


class Record(NamedTuple):
    """One record.

    ``id``: an id that is unique in the log and the same at every delivery: ``Update.id``, followed by ``/1``, ``/2``
    and so on for further records of one update. ``update_id``: ``Update.id``. ``table``: ``Update.table``. ``key``: the
    document of the row's key; empty for an operation on a whole table, and for a row without a key. ``value``: the
    document; ``None``: a tombstone, which removes the record with this key. ``old_key``: the document of the row's key
    before a change of the key, if this record also removes the old key; otherwise empty. ``everywhere``: whether a
    store with partitions needs the record in each partition, as for a TRUNCATE or a range of keys.
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
        """About the bytes that the record takes in memory."""
        return 200 + len(self.key) + len(self.value or b"")


class Envelope(Protocol):
    """Makes records of updates. Pure: the same update makes the same records."""

    def records(self, update: Update) -> Sequence[Record]:
        """The records of one update, in order. Raises :class:`NoForm`."""
        ...
