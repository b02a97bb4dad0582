"""The port of a store that takes records: the interface that each such kind of store implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sinks.records.record import Record
from subscriber_sdk import Datamarker, KeptMarker, ShardNotice, Update
from wormhole.model.errors import Fatal

__all__ = ["Packed", "RecordRefused", "RecordWriter"]


class RecordRefused(Fatal):
    """The store refuses one record for its content (size, name or form). The update is parked, or its flow halts."""

    code: str = "record-refused"

    def __init__(self, record: Record, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"the store refuses the record of {record.table}: {why}", hint=hint)
        self.update_id = record.update_id


@dataclass(frozen=True, slots=True)
class Packed:
    """Updates in the form of one kind of store, which only its writer reads. ``number``: the number of the updates."""

    number: int
    parts: Sequence[Any]
    size: int


class RecordWriter(ABC):
    """Writes records of several shards. Calls of one shard never overlap, calls of different shards do.

    Every method raises :class:`~wormhole.model.errors.TargetUnavailable` while the store cannot be used, and
    :class:`~wormhole.model.errors.TargetRefused` for what only an operator can change.

    ``most`` and ``most_bytes``: the most records, and about the most bytes, of one call of :meth:`write`, which may
    take 15 seconds. ``keeps``: whether a confirmed record stays when its flow is rolled back. ``aborts``: whether
    :meth:`rolled_back` undoes all writes since the last datamarker, so that records may be written before their
    transaction is complete.
    """

    most: int = 1000
    most_bytes: int = 1 << 20
    keeps: bool = False
    aborts: bool = False

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin an epoch of a shard. Returns the shard's datamarker in the store, or ``None`` if the store has none."""
        return None

    @abstractmethod
    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Write the records in order, and return when the store has confirmed all of them. They belong to whole
        transactions, or are the next piece of one transaction.

        After an exception any of them may have been written, and all are written again. Raises :class:`RecordRefused`
        for a record that the store will never take.
        """

    def packed(self, shard: str, updates: Sequence[Update]) -> Packed | None:
        """Pack updates of whole transactions without making records, which is faster; ``None``: records are needed.
        Raises the errors of the envelope.
        """
        return None

    async def write_packed(self, shard: str, packed: Packed) -> None:
        """Write packed updates. The store may confirm them later, but before :meth:`marked` returns."""
        raise NotImplementedError

    async def marked(self, marker: Datamarker) -> None:
        """Make all writes of ``marker.shard`` before ``marker`` durable. It is acknowledged when this returns."""
        return

    async def rolled_back(self, to: Datamarker, *, kept: bool) -> None:
        """Prepare for a repetition of the records after ``to``, except records of updates that are parked or skipped.
        ``kept``: confirmed records are not repeated.
        """
        return

    async def revoked(self, shard: str) -> None:
        """End the epoch of a shard. Does not raise."""
        return
