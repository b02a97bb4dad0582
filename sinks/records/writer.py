"""The port of a store that takes records: what each kind of store implements."""

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
    """The store refuses one record for its content: its size, its name, its form. The update is parked, or its flow
    halts.
    """

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

    ``most`` and ``most_bytes``: records, and about how many bytes, of one call of :meth:`write`, which may take 15
    seconds. ``keeps``: whether a record that was confirmed stays, also when its flow is rolled back. ``aborts``:
    whether :meth:`rolled_back` undoes what was written since the last datamarker. Then records are written before their
    transaction is complete.
    """

    most: int = 1000
    most_bytes: int = 1 << 20
    keeps: bool = False
    aborts: bool = False

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """An epoch of a shard begins. Returns the datamarker that the store holds of it, if it holds datamarkers."""
        return None

    @abstractmethod
    async def write(self, shard: str, records: Sequence[Record]) -> None:
        """Write the records in order, and return when the store has confirmed all of them. They are of whole
        transactions, or a piece of one that follows the pieces before it.

        After an exception any of them may have been written, and all are written again. Raises :class:`RecordRefused`
        for a record that the store will never take.
        """

    def packed(self, shard: str, updates: Sequence[Update]) -> Packed | None:
        """Updates of whole transactions without a record of each, which is faster; ``None``: their records are written.
        Raises what the envelope raises for an update without a record.
        """
        return None

    async def write_packed(self, shard: str, packed: Packed) -> None:
        """Write what :meth:`packed` returned. It may be confirmed later, before :meth:`marked` returns."""
        raise NotImplementedError

    async def marked(self, marker: Datamarker) -> None:
        """Everything of ``marker.shard`` before ``marker`` was written. It is acknowledged when this returns."""
        return

    async def rolled_back(self, to: Datamarker, *, kept: bool) -> None:
        """The records after ``to`` will be written again, except those of updates that are parked or skipped.
        ``kept``: confirmed records are left out.
        """
        return

    async def revoked(self, shard: str) -> None:
        """The epoch of a shard is over. Does not raise."""
        return
