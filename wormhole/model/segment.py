"""The result of reading a source: a contiguous piece of log, decoded and encoded for the wire.

It is the only type that ``datastores`` hand to ``caravan``. A segment holds, for each shard that the piece touches, a
:class:`Run` of encoded updates. The bytes are encoded once and shared by every flow, the change buffer and the archive.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema

__all__ = ["ChunkRange", "Run", "Segment"]

# The memory of the objects around the bytes, measured in CPython 3.11: a segment with its places and its marker, and a
# run with its arrays. In a log that is read transaction by transaction they are most of the memory.
_SEGMENT_BYTES: Final = 900
_RUN_BYTES: Final = 1400


@dataclass(slots=True)
class Run:
    """Encoded updates of one shard, in log order, with the data that routing needs.

    ``blob`` is the concatenation of ``BatchBody.updates`` entries, each with its field tag and length, so that an
    unfiltered body needs no work per update; ``ends[i]`` is where update ``i`` ends in it (array ``I``).
    ``schema_index``: per update, into ``schemas``; empty when all are 0 (array ``I``). ``indexes``: index of each
    update in its transaction (array ``I``); empty when they count up by one from 0 in each transaction, and from
    ``first_index`` in a transaction that began before the run.

    For each transaction that has an update or its end here, in log order: ``tx_source`` (into ``sources``; empty when
    all are 0), ``tx_number``, ``tx_file``, ``tx_offset`` (the place after it; of an unfinished transaction the place of
    its beginning) and ``tx_committed_at_us``. ``tx_end[i]`` is the number of updates before the end of transaction
    ``i``; the array is one shorter than ``tx_number`` if the last transaction continues in the next segment. Arrays
    ``I`` (source, end), ``Q``, ``Q``, ``Q``, ``q``.
    """

    blob: bytes
    ends: array[int]
    schemas: tuple[Schema, ...]
    sources: tuple[str, ...]
    tx_number: array[int]
    tx_file: array[int]
    tx_offset: array[int]
    tx_committed_at_us: array[int]
    tx_end: array[int]
    schema_index: array[int] = field(default_factory=lambda: array("I"))
    indexes: array[int] = field(default_factory=lambda: array("I"))
    first_index: int = 0
    tx_source: array[int] = field(default_factory=lambda: array("I"))

    @property
    def updates(self) -> int:
        """Number of updates."""
        return len(self.ends)

    @property
    def unfinished(self) -> bool:
        """Whether the last transaction continues in the next segment."""
        return len(self.tx_end) < len(self.tx_number)

    def transaction_id(self, tx: int) -> str:
        """``<source>:<number>`` of transaction ``tx``."""
        return f"{self.sources[self.tx_source[tx] if self.tx_source else 0]}:{self.tx_number[tx]}"


@dataclass(slots=True, frozen=True)
class ChunkRange:
    """The rows of a table that a segment holds: those with keys after ``after`` up to ``until``, as they are at its
    place.

    Keys are serialized ``wormhole.wire.v1.RowKey`` messages without a table. ``after`` is ``None`` from the first key
    on, ``until`` is ``None`` up to the last. ``begin`` and ``end``: the indexes of ``after`` and ``until`` in the
    table's list of boundaries. ``alone``: if not empty, the segment holds the rows of just these keys, and no row for a
    key whose row no longer exists.

    ``left_out``: keys that changes touched while the rows were read. The segment does not hold their rows, which may
    exist. ``again``: the keys among them whose rows have to be read again, because their changes do not contain the
    row. ``not_before``: the lead's place when the chunk was requested; flows that began later do not take it.
    ``portable``: the keys' order is that of integers or bytes. ``shards``: the shards of the keys in these lists; an
    empty text for bytes that are no key of the table, or another spelling of a key.
    """

    table: str
    schema: Schema
    after: bytes | None
    until: bytes | None
    begin: int
    end: int
    not_before: LogPosition
    left_out: tuple[bytes, ...] = ()
    again: tuple[bytes, ...] = ()
    alone: tuple[bytes, ...] = ()
    portable: bool = False
    shards: Mapping[bytes, str] = field(default_factory=dict)

    def of_shard(self, shard: str) -> ChunkRange:
        """The range for a flow of ``shard``, which was sent no rows of other shards.

        Rows of other shards may exist nevertheless. So the keys of other shards in ``alone`` are added to ``left_out``,
        and only these keys are in ``shards``.
        """
        if not self.shards:
            return self
        foreign = {key: of for key in self.alone if (of := self.shards.get(key, shard)) != shard}
        left_out = tuple(key for key in self.left_out if self.shards.get(key, shard) == shard)
        again = tuple(key for key in self.again if self.shards.get(key, shard) == shard)
        return replace(self, left_out=(*left_out, *foreign), again=again, shards=foreign)


@dataclass(slots=True)
class Segment:
    """A contiguous piece of one log, from ``begin`` to ``end``.

    ``marker``: the datamarker at ``end``. It is ``None`` when the piece ends inside a transaction, because a large
    transaction comes in bounded pieces. Then ``end`` is the place where that transaction begins, and no datamarker may
    be stored there. ``log_bytes``: bytes of log read for it. ``newest_us``: commit time of its last transaction
    (microseconds).

    ``gap``: set when log is missing between the previous segment's end and ``begin``; such a segment starts directly
    after the gap. ``broken``: the shards with updates that could not be decoded, each with the reason. Their runs lack
    these updates, so their flows are held before the segment. All other flows continue.

    ``chunk``: set when the segment holds rows of a table that a backfill read, instead of log. Then ``begin`` equals
    ``end``, and only flows that need the range take it. ``replaced``: tables whose rows changed here although the log
    does not have these changes: another table took the name (a RENAME), or a statement rewrote the rows. The value is
    the place where the last such statement begins, or was noticed.
    """

    begin: LogPosition
    end: LogPosition
    runs: dict[str, Run]
    marker: Datamarker | None
    log_bytes: int
    newest_us: int = 0
    gap: LogGap | None = None
    broken: Mapping[str, DecodeError] = field(default_factory=dict)
    chunk: ChunkRange | None = None
    replaced: Mapping[str, LogPosition] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Approximate bytes of memory of the segment's updates."""
        return sum(len(run.blob) + 8 * len(run.ends) + 40 * len(run.tx_number) for run in self.runs.values())

    @property
    def concerns_all(self) -> bool:
        """Whether the segment concerns every flow, and not only the flows of its shards."""
        return self.gap is not None or bool(self.broken) or bool(self.replaced) or self.chunk is not None

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of the segment: its updates and the objects around them."""
        return self.size + _SEGMENT_BYTES + _RUN_BYTES * len(self.runs)

    @property
    def updates(self) -> int:
        """Number of updates of all shards."""
        return sum(len(run.ends) for run in self.runs.values())
