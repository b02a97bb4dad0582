"""Encodes runs of a segment as batch bodies, and decodes batch bodies into columns.

A body is built once per (shard, filter, segment) and shared by every flow that needs it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final, overload

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.rows import entry
from wormhole.wire.shape import LONGEST_SOURCE, MOST_UPDATES, check_shape
from wormhole.wire.tally import Tally, tally_columns, tally_run
from wormhole.wire.v1 import update_pb2
from wormhole.wire.values import cut, split

__all__ = ["BadUpdate", "Body", "ParsedBody", "Slices", "build_body", "parse_body"]

_NOTHING: Final[Mapping[int, Any]] = {}


@dataclass(slots=True)
class BadUpdate:
    """An update whose value does not have the format that is declared for its table. ``position``: the place after its
    transaction.
    """

    id: str
    table: str
    position: LogPosition
    why: str


@dataclass(slots=True)
class Body:
    """A built body: its bytes, how many updates it holds, and the schemas that a stream needs before it.

    ``pieces``: its bytes in pieces, which are joined only where they are copied anyway. The updates of a whole run are
    not copied. ``bad``: its updates whose value does not have its declared format. ``tallies``: the tallies of its
    updates by window of commit time, for the delivery counts of every flow that sends it. ``unfinished``: the last
    transaction continues in the next segment. ``last``: the place after the last transaction; if the transaction is
    unfinished, the place where it begins.
    """

    pieces: tuple[bytes, ...]
    updates: int
    schemas: tuple[Schema, ...]
    bad: tuple[BadUpdate, ...] = ()
    tallies: Mapping[int, Tally] = field(default_factory=dict)
    unfinished: bool = False
    last: LogPosition | None = None

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))

    @property
    def data(self) -> bytes:
        """A copy of the pieces, joined."""
        return b"".join(self.pieces)


def _packed(values: array[int]) -> array[int]:
    """One entry if all are equal (see update.proto), else the array itself."""
    if len(values) > 1 and values.count(values[0]) == len(values):
        return values[:1]
    return values


def build_body(
    run: Run,
    incarnation: int,
    keep: Sequence[int] | None = None,
    first_tx: int = 0,
    inside: bool = False,
    marks: Mapping[int, int] = _NOTHING,
    instead: Mapping[int, bytes] = _NOTHING,
    bad: Sequence[tuple[int, Exception]] = (),
    counted: bool = True,
) -> Body | None:
    """The body of a run's updates, or of those whose ordinals are in ``keep`` (ascending).

    ``marks``: the number of the ``wormhole.wire.v1.Mark`` by ordinal. ``instead``: by ordinal, the entry that replaces
    the update's own. ``bad``: ordinals of updates whose value does not have its format, with the reason. ``counted``:
    whether delivery counts include the updates, as they include those of a log.

    Transactions without a kept update are left out, except one that began in an earlier segment: its end has to be sent
    even if its last updates were dropped. Transactions before ``first_tx`` are always left out (``keep`` has none of
    their updates). ``inside``: earlier updates of transaction ``first_tx`` were sent from another segment. Returns
    ``None`` when nothing is left.
    """
    message = update_pb2.BatchBody(
        incarnation=incarnation, schema_ids=[schema.id for schema in run.schemas], sources=run.sources
    )
    if keep is None and (marks or instead):
        keep = range(len(run.ends))
    if keep is None or (len(keep) == len(run.ends) and not first_tx and not marks and not instead):
        if not run.tx_number:
            return None
        blob = run.blob
        updates = len(run.ends)
        tallies = tally_run(run) if counted else {}
        message.schema_index.extend(_packed(run.schema_index))
        message.update_index.extend(run.indexes)
        message.first_index = run.first_index
        message.tx_source.extend(_packed(run.tx_source))
        message.tx_number.extend(run.tx_number)
        message.tx_file.extend(_packed(run.tx_file))
        message.tx_offset.extend(run.tx_offset)
        message.tx_committed_at_us.extend(_packed(run.tx_committed_at_us))
        message.tx_end.extend(run.tx_end)
    else:
        blob, updates = _fill_kept(message, run, keep, first_tx, inside or (not first_tx and _continues(run)), instead)
        if not message.tx_number:
            return None
        if marks and any(ordinal in marks for ordinal in keep):
            message.marks.extend(marks.get(ordinal, 0) for ordinal in keep)  # type: ignore[misc]  # numbers of the enum
        tallies = _tallied(run.sources, message, updates) if counted else {}
    if len(tallies) == 1:
        (message.window,) = tallies
    bad_updates = tuple(_bad_update(run, incarnation, ordinal, why) for ordinal, why in bad)
    unfinished = len(message.tx_end) < len(message.tx_number)
    last = LogPosition(incarnation, message.tx_file[-1], message.tx_offset[-1])
    return Body((blob, message.SerializeToString()), updates, run.schemas, bad_updates, tallies, unfinished, last)


def _tallied(sources: Sequence[str], message: update_pb2.BatchBody, updates: int) -> dict[int, Tally]:
    return tally_columns(
        sources,
        array("I", message.tx_source),
        array("Q", message.tx_number),
        array("q", message.tx_committed_at_us),
        array("I", message.tx_end),
        array("I", message.update_index),
        0,
        updates,
    )


def _bad_update(run: Run, incarnation: int, ordinal: int, why: Exception) -> BadUpdate:
    tx = bisect_right(run.tx_end, ordinal)
    counted = ordinal - (run.tx_end[tx - 1] if tx else -run.first_index)
    index = run.indexes[ordinal] if run.indexes else counted
    source = run.sources[run.tx_source[tx] if run.tx_source else 0]
    schema = run.schemas[_at(run.schema_index, ordinal) if run.schema_index else 0]
    position = LogPosition(incarnation, run.tx_file[tx], run.tx_offset[tx])
    return BadUpdate(f"{source}:{run.tx_number[tx]}:{index}", schema.table, position, str(why))


def _fill_kept(
    message: update_pb2.BatchBody,
    run: Run,
    keep: Sequence[int],
    first_tx: int,
    continued: bool,
    instead: Mapping[int, bytes],
) -> tuple[bytes, int]:
    ends, blob = run.ends, run.blob
    if instead:
        pieces = [instead.get(i) or blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]
    else:
        pieces = [blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]
    if run.schema_index:
        one = len(run.schema_index) == 1
        message.schema_index.extend(_packed(array("I", (run.schema_index[0 if one else i] for i in keep))))
    firsts = array("I", chain((0,), run.tx_end))  # first update of each transaction
    kept_tx: list[int] = []
    counts: list[int] = []  # kept updates up to the end of each kept transaction
    indexes = array("I")
    if continued and len(run.tx_end) > first_tx and (not keep or keep[0] >= run.tx_end[first_tx]):
        kept_tx.append(first_tx)
        counts.append(0)
    for ordinal in keep:
        tx = bisect_right(run.tx_end, ordinal)
        if not kept_tx or kept_tx[-1] != tx:
            kept_tx.append(tx)
            counts.append(counts[-1] if counts else 0)
        counts[-1] += 1
        if run.indexes:
            indexes.append(run.indexes[ordinal])
        else:
            indexes.append(ordinal - firsts[tx] + (run.first_index if tx == 0 else 0))
    message.update_index.extend(indexes)
    message.tx_source.extend(_packed(array("I", (run.tx_source[t] for t in kept_tx))) if run.tx_source else ())
    message.tx_number.extend(run.tx_number[t] for t in kept_tx)
    message.tx_file.extend(_packed(array("Q", (run.tx_file[t] for t in kept_tx))))
    message.tx_offset.extend(run.tx_offset[t] for t in kept_tx)
    message.tx_committed_at_us.extend(_packed(array("q", (run.tx_committed_at_us[t] for t in kept_tx))))
    ended = len(run.tx_end)
    message.tx_end.extend(count for t, count in zip(kept_tx, counts, strict=True) if t < ended)
    return b"".join(pieces), len(keep)


def _continues(run: Run) -> bool:
    """Whether the run begins in the middle of a transaction whose earlier updates were of this shard too."""
    return bool(run.first_index or (run.indexes and run.indexes[0]) or (run.tx_end and run.tx_end[0] == 0))


class Slices(Sequence[bytes]):
    """Pieces of ``data``, cut when they are accessed. ``spans`` has the begin and the end of each.

    ``alone``: whether ``data`` up to the last piece contains nothing but the pieces, each after its tag and length.
    """

    __slots__ = ("alone", "data", "spans")

    def __init__(self, data: bytes, spans: array[int], *, alone: bool = False) -> None:
        self.data = data
        self.spans = spans
        self.alone = alone

    def __len__(self) -> int:
        return len(self.spans) // 2

    def __iter__(self) -> Iterator[bytes]:
        return iter(cut(self.data, self.spans))

    @overload
    def __getitem__(self, i: int) -> bytes: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[bytes]: ...
    def __getitem__(self, i: int | slice) -> bytes | Sequence[bytes]:
        at = range(len(self))[i]
        if not isinstance(at, range):
            return self.data[self.spans[2 * at] : self.spans[2 * at + 1]]
        if at.start == 0 and at.step == 1:
            return Slices(self.data, self.spans[: 2 * at.stop], alone=self.alone)
        return [self[one] for one in at]

    def entries(self) -> memoryview | bytes:
        """The pieces as they are in ``data``, each after its tag and length."""
        if self.alone:
            return memoryview(self.data)[: self.spans[-1] if self.spans else 0]
        return b"".join(map(entry, self))


@dataclass(slots=True)
class ParsedBody:
    """The columns of a body that was checked: every array has the length that the format requires."""

    updates: Sequence[bytes]
    schema_ids: Sequence[int]
    schema_index: Sequence[int]
    update_index: Sequence[int]
    first_index: int
    sources: Sequence[str]
    tx_source: Sequence[int]
    tx_number: Sequence[int]
    incarnation: int
    tx_file: Sequence[int]
    tx_offset: Sequence[int]
    tx_committed_at_us: Sequence[int]
    tx_end: Sequence[int]
    """The last number is above the number of updates if the transaction ended with updates that no body contains."""
    marks: Sequence[int] = ()
    window: int | None = None
    """The window of all updates' commit time (:mod:`wormhole.wire.tally`); ``None``: several windows, or unknown."""

    def to_bytes(self, *, before: bytes | None = None) -> bytes:
        """Inverse of :func:`parse_body`. ``before``: the first update, if the columns include it and ``updates`` lacks
        it.
        """
        updates, tx_end = self.updates, self.tx_end
        elsewhere = len(tx_end) > 0 and before is None and tx_end[-1] > len(updates)
        entries = updates.entries() if isinstance(updates, Slices) else b"".join(map(entry, updates))
        columns = update_pb2.BatchBody(
            schema_ids=self.schema_ids,
            schema_index=self.schema_index,
            update_index=self.update_index,
            first_index=self.first_index,
            sources=self.sources,
            tx_source=self.tx_source,
            tx_number=self.tx_number,
            incarnation=self.incarnation,
            tx_file=self.tx_file,
            tx_offset=self.tx_offset,
            tx_committed_at_us=self.tx_committed_at_us,
            tx_end=tx_end[:-1] if elsewhere else tx_end,
            marks=self.marks,  # type: ignore[arg-type]  # numbers of the enum
            window=self.window,
            ended=elsewhere,
        ).SerializeToString()
        return b"".join((b"" if before is None else entry(before), entries, columns))

    def transaction_of(self, ordinal: int) -> int:
        """Ordinal of the transaction that update ``ordinal`` belongs to."""
        return bisect_right(self.tx_end, ordinal)

    def index_of(self, ordinal: int) -> int:
        """Index of the update within its transaction in the log."""
        if self.update_index:
            return self.update_index[ordinal]
        tx = bisect_right(self.tx_end, ordinal)
        return ordinal - self.tx_end[tx - 1] if tx else ordinal + self.first_index

    def mark_of(self, ordinal: int) -> int:
        """The update's ``wormhole.wire.v1.Mark``: 0 none, 1 entered, 2 left."""
        return self.marks[ordinal] if self.marks else 0

    def schema_id_of(self, ordinal: int) -> int:
        """Id of the update's schema."""
        return self.schema_ids[_at(self.schema_index, ordinal) if self.schema_index else 0]

    def transaction_id(self, tx: int) -> str:
        """Text id of transaction ``tx``: ``<source>:<number>``."""
        return f"{self.sources[_at(self.tx_source, tx) if self.tx_source else 0]}:{self.tx_number[tx]}"

    def position_of(self, tx: int) -> LogPosition:
        """The place after transaction ``tx``; if it is unfinished, the place where it begins."""
        return LogPosition(self.incarnation, _at(self.tx_file, tx), self.tx_offset[tx])

    def committed_at_us(self, tx: int) -> int:
        """Commit time of transaction ``tx``, microseconds since 1970 in UTC; 0 unknown."""
        return _at(self.tx_committed_at_us, tx)


def _at(values: Sequence[int], i: int) -> int:
    return values[0] if len(values) == 1 else values[i]


def parse_body(data: bytes) -> ParsedBody:
    """Check and open a body. Rows stay encoded.

    Raises :class:`~wormhole.model.errors.ProtocolError`, which names the field.
    """
    check_shape(data)
    try:
        found = split(data)
        message = update_pb2.BatchBody.FromString(data if found is None else found[1])
    except ProtobufDecodeError as error:
        raise ProtocolError(f"batch body is no valid message: {error}") from error
    updates: Sequence[bytes] = message.updates
    if found is not None:
        spans, rest = found
        # If the bytes after the last update are as many as those of all other fields, only updates precede them.
        updates = Slices(data, spans, alone=not spans or len(data) - spans[-1] == len(rest))
    count, transactions = len(updates), len(message.tx_number)
    if max(count, transactions) > MOST_UPDATES:
        raise ProtocolError(
            f"batch body: {count} updates in {transactions} transactions; at most {MOST_UPDATES} are taken"
        )
    if any(len(source) > LONGEST_SOURCE for source in message.sources):
        raise ProtocolError(f"batch body: sources: one is longer than {LONGEST_SOURCE} characters")
    tx_end = message.tx_end[:]

    def length(name: str, values: Sequence[int], allowed: tuple[int, ...]) -> None:
        if len(values) not in allowed:
            raise ProtocolError(
                f"batch body: {name} has {len(values)} entries for {count} updates in {transactions} transactions"
            )

    length("schema_index", message.schema_index, (0, 1, count))
    length("update_index", message.update_index, (0, count))
    length("tx_source", message.tx_source, (0, 1, transactions))
    length("tx_file", message.tx_file, (min(1, transactions), transactions))
    length("tx_offset", message.tx_offset, (transactions,))
    length("tx_committed_at_us", message.tx_committed_at_us, (min(1, transactions), transactions))
    length("tx_end", tx_end, (transactions, max(0, transactions - 1)))
    length("marks", message.marks, (0, count))
    if count and not transactions:
        raise ProtocolError(f"batch body: {count} updates in no transaction")
    if any(a > b for a, b in pairwise(tx_end)) or (tx_end and tx_end[-1] > count):
        raise ProtocolError("batch body: tx_end must ascend and not pass the number of updates")
    if len(tx_end) == transactions and transactions and tx_end[-1] != count:
        raise ProtocolError("batch body: updates after the end of the last transaction")
    if message.ended:
        length("tx_end", tx_end, (transactions - 1,))
        tx_end.append(count + 1)
    for name, indexes, limit, used in (
        ("schema_index", message.schema_index, len(message.schema_ids), count),
        ("tx_source", message.tx_source, len(message.sources), transactions),
    ):
        if used and (max(indexes) if indexes else 0) >= limit:
            raise ProtocolError(f"batch body: {name} points past its table of {limit}")
    return ParsedBody(
        updates,
        message.schema_ids,
        message.schema_index[:],
        message.update_index[:],
        message.first_index,
        message.sources,
        message.tx_source[:],
        message.tx_number,
        message.incarnation,
        message.tx_file,
        message.tx_offset,
        message.tx_committed_at_us,
        tx_end,
        message.marks[:],
        message.window if message.HasField("window") else None,
    )
