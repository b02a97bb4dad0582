# cython: boundscheck=False, wraparound=False
"""An update, one change of one row or key, as a handler receives it. Hot: compiled where possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from wormhole.model.errors import DecodeError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.values import Op, Value
from wormhole.wire.body import ParsedBody, Slices
from wormhole.wire.rows import decode_row, op_numbered
from wormhole.wire.v1 import update_pb2
from wormhole.wire.values import check, gather, known, named, values

__all__ = ["Batch", "Transaction", "Update", "by_column", "stretch"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENTERED, _LEFT = int(update_pb2.ENTERED), int(update_pb2.LEFT)
_BARRIERS: Final = frozenset({Op.TRUNCATE, Op.DELETE_RANGE})

# The fields of an update that hold values; the .pxd makes C integers of them.
_KEY: Final = 2
_AFTER: Final = 3
_BEFORE: Final = 4
_OLD_KEY: Final = 5
_KEY_END: Final = 6


@dataclass(slots=True, frozen=True)
class Transaction:
    """The commit that an update belongs to: its id, the place after it, and its commit time (UTC; ``None``: unknown).

    The READ updates of one chunk of a backfill are a transaction, too, without a commit time.
    """

    id: str
    position: LogPosition
    committed_at: datetime | None


class Batch:
    """The values that the updates of one body share.

    ``schema_of``: schema by id; raises ``KeyError`` for a schema that was never sent. ``generation``: the generation of
    the flow's last backfill.
    """

    __slots__ = ("_only", "_transaction", "_tx", "body", "epoch", "generation", "replayed", "schema_of", "shard")

    def __init__(
        self,
        body: ParsedBody,
        shard: str,
        epoch: int,
        replayed: bool,
        schema_of: Callable[[int], Schema],
        generation: int = 0,
    ) -> None:
        self.body = body
        self.shard = shard
        self.epoch = epoch
        self.replayed = replayed
        self.schema_of = schema_of
        self.generation = generation
        self._only: Schema | None = None  # the schema of all updates, once it was requested
        self._transaction: Transaction | None = None  # the last transaction that was requested, and its ordinal
        self._tx = -1

    def updates(self) -> list[Update]:
        """The updates in log order. A row is decoded on access."""
        rows = self.body.updates
        if not isinstance(rows, Slices):
            return [_update(self, i, row, 0, len(row)) for i, row in enumerate(rows)]
        data = rows.data
        spans = rows.spans
        return [_update(self, i, data, spans[2 * i], spans[2 * i + 1]) for i in range(len(rows))]

    def table_of(self, ordinal: int) -> Schema:
        """The schema of one update. Raises ``KeyError``."""
        schema = self._only
        if schema is None:
            body = self.body
            schema = self.schema_of(body.schema_id_of(ordinal))
            if len(body.schema_index) < 2:
                self._only = schema
        return schema

    def transaction_of(self, ordinal: int) -> Transaction:
        """The transaction of one update. Updates of one transaction that are requested in order get one object."""
        body = self.body
        tx = body.transaction_of(ordinal)
        transaction = self._transaction
        if transaction is None or tx != self._tx:
            transaction = Transaction(body.transaction_id(tx), body.position_of(tx), _time(body.committed_at_us(tx)))
            self._transaction = transaction
            self._tx = tx
        return transaction


class Update:
    """One change. Everything is decoded on first access; treat it as immutable.

    An update keeps the bytes of its whole batch alive: call :meth:`detach` to keep one beyond the callback.
    """

    __slots__ = ("_batch", "_begin", "_data", "_end", "_head", "_ordinal")
    _batch: Batch
    _ordinal: int
    _data: bytes
    _begin: int
    _end: int
    _head: int

    def _check(self) -> bool:
        """Set ``_head`` to the result of :func:`~wormhole.wire.values.check`. Returns whether the row was too large."""
        if self._head < 0:
            try:
                self._head = check(self._data, self._begin, self._end)
            except DecodeError as error:
                raise DecodeError(
                    f"update {self.id} is no valid row: {error.message}",
                    shard=self.shard,
                    position=str(self.position),
                    hint="read that part of the log with `wormholectl tail`; the publisher sent what its log held",
                ) from error
        return self._head & 1 != 0

    def _values(self, field: int) -> tuple[Value, ...]:
        self._check()
        return values(self._data, self._begin, self._end, field)

    def _named(self, field: int) -> dict[str, Value] | None:
        names = self._batch.table_of(self._ordinal).names
        self._check()
        return named(self._data, self._begin, self._end, field, names)

    @property
    def batch(self) -> Batch:
        """The batch of the update, for code that works on whole batches."""
        return self._batch

    @property
    def id(self) -> str:
        """``<transaction id>:<index in it>``: the same on every path, so that a handler recognizes a duplicate."""
        return f"{self._batch.transaction_of(self._ordinal).id}:{self._batch.body.index_of(self._ordinal)}"

    @property
    def index(self) -> int:
        """Index of the update within its transaction in the log."""
        return self._batch.body.index_of(self._ordinal)

    @property
    def size(self) -> int:
        """Bytes of the update as it was sent, without the values that all updates of its batch share."""
        return self._end - self._begin

    @property
    def op(self) -> Op:
        """What happened."""
        self._check()
        return op_numbered(self._head >> 1)

    @property
    def schema(self) -> Schema:
        """The key and columns of the table at the time of the change."""
        return self._batch.table_of(self._ordinal)

    @property
    def table(self) -> str:
        """Name of the table, or of the datastore's equivalent."""
        return self._batch.table_of(self._ordinal).table

    @property
    def shard(self) -> str:
        """The shard that the update belongs to."""
        return self._batch.shard

    @property
    def key(self) -> tuple[Value, ...]:
        """Values of the key columns (after the change). Empty for an operation on a whole table."""
        return self._values(_KEY)

    @property
    def old_key(self) -> tuple[Value, ...] | None:
        """The key before the change if the change altered it, else ``None``."""
        return self._values(_OLD_KEY) or None

    @property
    def key_end(self) -> tuple[Value, ...] | None:
        """End (exclusive) of a ``DELETE_RANGE`` that begins at ``key``, else ``None``."""
        return self._values(_KEY_END) or None

    @property
    def before(self) -> Mapping[str, Value] | None:
        """Column values before the change; ``None`` where the log has none."""
        return self._named(_BEFORE)

    @property
    def after(self) -> Mapping[str, Value] | None:
        """Column values after the change; ``None`` for a delete, and for a :attr:`left` update in a log without values
        from before a change.

        In a store of bytes: ``{"value": bytes}``.
        """
        return self._named(_AFTER)

    @property
    def changed(self) -> frozenset[str] | None:
        """Names of the columns whose values differ; ``None`` where the log does not have them."""
        before, after = self.before, self.after
        if before is None or after is None:
            return None
        there = known(self._data, self._begin, self._end, _AFTER)
        return frozenset(
            [
                name
                for (name, value), unchanged in zip(after.items(), there, strict=True)
                if not unchanged or before.get(name) != value
            ]
        )

    @property
    def entered(self) -> bool:
        """Whether the row passes the application's filter only since this change. Always false for an insert."""
        return self._batch.body.mark_of(self._ordinal) == _ENTERED

    @property
    def left(self) -> bool:
        """Whether the row does not pass the application's filter any more, and has to be dropped like a deleted row.

        ``op`` is the log's, ``UPSERT`` or ``UPDATE``. If the log has no values from before the change, it is unknown
        whether the row ever passed. Then every change to a row that does not pass is delivered as left, with its key
        and without ``after``.
        """
        return self._batch.body.mark_of(self._ordinal) == _LEFT

    @property
    def too_large(self) -> bool:
        """The values were left out because the update is over ``max_update_bytes``."""
        return self._check()

    @property
    def position(self) -> LogPosition:
        """The place after the update's transaction; in an unfinished large transaction, the place where it begins."""
        return self._batch.transaction_of(self._ordinal).position

    @property
    def committed_at(self) -> datetime | None:
        """Commit time, UTC; ``None`` where the log has none, and for a READ, which is no commit."""
        return self._batch.transaction_of(self._ordinal).committed_at

    @property
    def transaction(self) -> Transaction:
        """The commit that the update belongs to."""
        return self._batch.transaction_of(self._ordinal)

    @property
    def ends_transaction(self) -> bool:
        """Whether this is the last update of its transaction that this flow receives."""
        body = self._batch.body
        tx = body.transaction_of(self._ordinal)
        return tx < len(body.tx_end) and body.tx_end[tx] == self._ordinal + 1

    @property
    def in_unfinished(self) -> bool:
        """Whether the rest of its transaction comes in later batches; :attr:`position` is then where it begins."""
        body = self._batch.body
        return body.transaction_of(self._ordinal) >= len(body.tx_end)

    @property
    def epoch(self) -> int:
        """The flow's epoch: a fencing token for writes that this update causes."""
        return self._batch.epoch

    @property
    def generation(self) -> int:
        """The number of the last backfill that was requested for this flow; 0: none was. It rises with each backfill.

        A handler may store it with each row, for READ updates and changes alike. At ``on_scan_end``, the table's rows
        with a lower number do not exist any more.
        """
        return self._batch.generation

    @property
    def replayed(self) -> bool:
        """Whether the flow may have received the update before."""
        return self._batch.replayed

    def ordering_keys(self) -> tuple[tuple[object, ...], ...] | None:
        """The keys whose updates have to stay in order: the key, and the key before a key change; ``None``: every key
        (TRUNCATE, DELETE_RANGE).

        The keys are hashable, valid in this process only, and equal for equal keys of one table. Each begins with the
        table; an update without a key has the table alone, which means every key of it.
        """
        if self.op in _BARRIERS:
            return None
        row, table = decode_row(self._bytes()), self.table
        keys = [(table, *(value.SerializeToString() for value in row.key))]
        if row.old_key:
            keys.append((table, *(value.SerializeToString() for value in row.old_key)))
        return tuple(keys)

    def rows(self) -> tuple[bytes, ...]:
        """The rows that the update touches, as serialized ``wormhole.wire.v1.RowKey``: one, both of a key change, or
        the whole table. An update without a key touches the whole table, because its row is not known, and may be one
        that the table had with a key.

        Unlike :meth:`ordering_keys` they are the same in every process.
        """
        barrier = self.op in _BARRIERS
        row, table = decode_row(self._bytes()), self.table
        if barrier or not row.key:
            keys = [update_pb2.RowKey(table=table, whole=True)]
        else:
            keys = [
                update_pb2.RowKey(table=table, values=key)
                for key in ((row.key, row.old_key) if row.old_key else (row.key,))
            ]
        return tuple(dict.fromkeys(key.SerializeToString(deterministic=True) for key in keys))

    def encoded(self) -> tuple[Schema, bytes]:
        """The update's schema, and the bytes of a batch body with this update alone, to deliver it again."""
        return self._batch.table_of(self._ordinal), self._alone().to_bytes()

    def detach(self) -> Update:
        """A copy that holds its own bytes only, for keeping beyond the callback."""
        batch = self._batch
        schema = batch.table_of(self._ordinal)
        alone = Batch(self._alone(), batch.shard, batch.epoch, batch.replayed, lambda _: schema, batch.generation)
        return alone.updates()[0]

    def _alone(self) -> ParsedBody:
        """A body with this update only."""
        i, body = self._ordinal, self._batch.body
        tx = body.transaction_of(i)
        position = body.position_of(tx)
        source, _, number = body.transaction_id(tx).rpartition(":")
        return ParsedBody(
            updates=(self._bytes(),),
            schema_ids=(body.schema_id_of(i),),
            schema_index=(),
            update_index=(body.index_of(i),),
            first_index=0,
            sources=(source,),
            tx_source=(),
            tx_number=(int(number),),
            incarnation=position.incarnation,
            tx_file=(position.file,),
            tx_offset=(position.offset,),
            tx_committed_at_us=(body.committed_at_us(tx),),
            # 2, more than the updates of the copy: the transaction's end is not in it.
            tx_end=() if self.in_unfinished else (1 if self.ends_transaction else 2,),
            marks=body.marks and (body.marks[i],),
        )

    def _bytes(self) -> bytes:
        return self._data[self._begin : self._end]

    def __repr__(self) -> str:
        return f"<Update {self.id} {self.op.value} {self.table} {self.key!r}>"


def stretch(updates: Sequence[Update], begin: int) -> tuple[int, int]:
    """How many of ``updates``, from ``begin`` on, follow one another in one batch and have one schema; and the ordinal
    of the first.
    """
    update = updates[begin]
    batch = update._batch
    first = update._ordinal
    index = batch.body.schema_index
    many = len(index) > 1
    end = len(updates)
    at = begin + 1
    while at < end:
        update = updates[at]
        ordinal = first + at - begin
        if update._batch is not batch or update._ordinal != ordinal:
            break
        if many and index[ordinal] != index[first]:
            break
        at += 1
    return at - begin, first


def by_column(updates: list[Update]) -> tuple[set[Op], list[list[Value]], list[list[Value]]] | None:
    """The operations, and column by column the keys and the rows after the change: ``None`` unless each of the
    ``updates`` is of one schema, has every value, and neither a second key nor a mark (:attr:`Update.left`).

    Raises as the properties of an update.
    """
    if not updates:
        return None
    update = updates[0]
    schema = update._batch.table_of(update._ordinal)
    keys: list[list[Value]] = [[] for _ in schema.key]
    rows: list[list[Value]] = [[] for _ in schema.columns]
    heads = set()
    for update in updates:
        batch = update._batch
        if len(batch.body.marks) or batch.table_of(update._ordinal) is not schema or update._check():
            return None
        heads.add(update._head)
        if not gather(update._data, update._begin, update._end, keys, rows):
            return None
    return {op_numbered(head >> 1) for head in heads}, keys, rows


def _update(batch: Batch, ordinal: int, data: bytes, begin: int, end: int) -> Update:
    """Update ``ordinal`` of the batch; its bytes lie in ``data``."""
    # A compiled constructor with arguments takes several times as long.
    update = Update.__new__(Update)
    update._batch = batch
    update._ordinal = ordinal
    update._data = data
    update._begin = begin
    update._end = end
    update._head = -1
    return update


def _time(us: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=us) if us else None
