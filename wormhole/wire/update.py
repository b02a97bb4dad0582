"""One change of one row or key, as a handler receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op, Value
from wormhole.wire.body import ParsedBody
from wormhole.wire.rows import Row, decode_row, op_of, values_of
from wormhole.wire.v1 import update_pb2

__all__ = ["Batch", "Transaction", "Update"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENTERED, _LEFT = int(update_pb2.ENTERED), int(update_pb2.LEFT)
_BARRIERS: Final = frozenset({Op.TRUNCATE, Op.DELETE_RANGE})


@dataclass(slots=True, frozen=True)
class Transaction:
    """The commit that an update belongs to:

    ``id``, the place after it, and when it was committed (UTC; ``None`` unknown). The READ updates of one chunk of a
    backfill are a transaction, too, without a commit time.
    """

    id: str
    position: LogPosition
    committed_at: datetime | None


@dataclass(slots=True)
class Batch:
    """What the updates of one body share."""

    body: ParsedBody
    shard: str
    epoch: int
    replayed: bool
    schema_of: Callable[[int], Schema]
    """Schema by id; raises ``KeyError`` for one that was never sent."""
    generation: int = 0
    """Of the flow's last backfill."""

    def updates(self) -> list[Update]:
        """The updates in log order; rows decode when looked at."""
        return [Update(self, i) for i in range(len(self.body.updates))]


class Update:
    """One change. Everything is decoded on first access; treat it as immutable.

    An update keeps the bytes of its whole batch alive: call :meth:`detach` to keep one beyond the callback.
    """

    __slots__ = ("_batch", "_ordinal", "_row", "_schema")

    def __init__(self, batch: Batch, ordinal: int) -> None:
        self._batch = batch
        self._ordinal = ordinal
        self._row: Row | None = None
        self._schema: Schema | None = None

    def _load(self) -> Row:
        row = self._row
        if row is None:
            try:
                row = self._row = decode_row(self._batch.body.updates[self._ordinal])
            except ProtobufDecodeError as error:
                raise DecodeError(
                    f"update {self.id} is no valid row: {error}",
                    shard=self.shard,
                    position=str(self.position),
                    hint="read that part of the log with `wormholectl tail`; the publisher sent what its log held",
                ) from error
        return row

    def _table(self) -> Schema:
        schema = self._schema
        if schema is None:
            batch = self._batch
            schema = self._schema = batch.schema_of(batch.body.schema_id_of(self._ordinal))
        return schema

    @property
    def batch(self) -> Batch:
        """The batch that it came in, for who works on whole batches."""
        return self._batch

    @property
    def id(self) -> str:
        """``<transaction id>:<index in it>``: the same on every path, so that a handler recognizes a duplicate."""
        body = self._batch.body
        return f"{body.transaction_id(body.transaction_of(self._ordinal))}:{body.index_of(self._ordinal)}"

    @property
    def index(self) -> int:
        """Index of the update within its transaction in the log."""
        return self._batch.body.index_of(self._ordinal)

    @property
    def size(self) -> int:
        """Bytes of the update as it was sent, without what it shares with others of its batch."""
        return len(self._batch.body.updates[self._ordinal])

    @property
    def op(self) -> Op:
        """What happened."""
        return op_of(self._load())

    @property
    def table(self) -> str:
        """Table, or what the datastore has in its place."""
        return self._table().table

    @property
    def shard(self) -> str:
        """The shard that the update belongs to."""
        return self._batch.shard

    @property
    def key(self) -> tuple[Value, ...]:
        """Values of the key columns (after the change). Empty for an operation on a whole table."""
        return values_of(self._load().key)

    @property
    def old_key(self) -> tuple[Value, ...] | None:
        """The key before the change if the change altered it, else ``None``."""
        return values_of(self._load().old_key) or None

    @property
    def key_end(self) -> tuple[Value, ...] | None:
        """End (exclusive) of a ``DELETE_RANGE`` that begins at ``key``, else ``None``."""
        return values_of(self._load().key_end) or None

    @property
    def before(self) -> Mapping[str, Value] | None:
        """Column values before the change; ``None`` where the log has none."""
        return _named(self._table().columns, values_of(self._load().before))

    @property
    def after(self) -> Mapping[str, Value] | None:
        """Column values after the change; ``None`` for a delete, and for one that is :attr:`left` in a log that has no
        values from before.

        A store of bytes: ``{"value": bytes}``.
        """
        return _named(self._table().columns, values_of(self._load().after))

    @property
    def changed(self) -> frozenset[str] | None:
        """Names of the columns whose values differ; ``None`` where the log does not have them."""
        before, after = self.before, self.after
        if before is None or after is None:
            return None
        unknown = [value.WhichOneof("kind") is None for value in self._load().after]  # changed, and not known to what
        return frozenset(
            name
            for (name, value), changed in zip(after.items(), unknown, strict=True)
            if changed or before.get(name) != value
        )

    @property
    def entered(self) -> bool:
        """Whether the change brought the row into what the application's filter selects.

        Never set for an insert, which is one by itself.
        """
        return self._batch.body.mark_of(self._ordinal) == _ENTERED

    @property
    def left(self) -> bool:
        """Whether the row is out of what the application's filter selects, and has to be dropped like a deleted one.

        ``op`` is that of the log, an ``UPSERT`` or ``UPDATE``. Where the log has no values from before the change,
        it is unknown whether the row was ever selected: then every change to a row that does not pass
        comes so, with its key and ``after`` ``None``.
        """
        return self._batch.body.mark_of(self._ordinal) == _LEFT

    @property
    def too_large(self) -> bool:
        """The values were left out because the update is over ``max_update_bytes``."""
        return self._load().too_large

    @property
    def position(self) -> LogPosition:
        """The place after the update's transaction (inside an unfinished large one: where that begins)."""
        body = self._batch.body
        return body.position_of(body.transaction_of(self._ordinal))

    @property
    def committed_at(self) -> datetime | None:
        """Commit time, UTC; ``None`` where the log has none, and for a READ, which is no commit."""
        body = self._batch.body
        return _time(body.committed_at_us(body.transaction_of(self._ordinal)))

    @property
    def transaction(self) -> Transaction:
        """The commit that the update belongs to."""
        body = self._batch.body
        tx = body.transaction_of(self._ordinal)
        return Transaction(body.transaction_id(tx), body.position_of(tx), _time(body.committed_at_us(tx)))

    @property
    def ends_transaction(self) -> bool:
        """Whether this is the last update of its transaction that this flow receives."""
        body = self._batch.body
        tx = body.transaction_of(self._ordinal)
        return tx < len(body.tx_end) and body.tx_end[tx] == self._ordinal + 1

    @property
    def in_unfinished(self) -> bool:
        """Whether the rest of its transaction comes in later batches; then :attr:`position` is where that begins."""
        body = self._batch.body
        return body.transaction_of(self._ordinal) >= len(body.tx_end)

    @property
    def epoch(self) -> int:
        """The flow's epoch: a fencing token for writes that this update causes."""
        return self._batch.epoch

    @property
    def generation(self) -> int:
        """The number of the last backfill that was asked for this flow, 0 when none ever was. It rises with each.

        Rows stamped with it, by READ updates and changes alike, tell at ``on_scan_end`` which others do not exist any
        more.
        """
        return self._batch.generation

    @property
    def replayed(self) -> bool:
        """Whether the flow may have received the update before."""
        return self._batch.replayed

    def ordering_keys(self) -> tuple[tuple[object, ...], ...] | None:
        """What has to stay in order: the key, and the key before a key change; ``None``: every key (TRUNCATE,
        DELETE_RANGE).

        The keys are hashable, of this process only, and equal for equal keys of one table. Each begins with the table;
        an update without a key has the table alone, which means every key of it.
        """
        row = self._load()
        if op_of(row) in _BARRIERS:
            return None
        table = self.table
        keys = [(table, *(value.SerializeToString() for value in row.key))]
        if row.old_key:
            keys.append((table, *(value.SerializeToString() for value in row.old_key)))
        return tuple(keys)

    def rows(self) -> tuple[bytes, ...]:
        """The rows that it touches, as serialized ``wormhole.wire.v1.RowKey``: one, both of a key change, or the whole
        table. An update without a key touches the whole table: which of its rows is not known, and rows that the table
        had with a key may be among them.

        Unlike :meth:`ordering_keys` they are the same in every process.
        """
        row, table = self._load(), self.table
        if op_of(row) in _BARRIERS or not row.key:
            keys = [update_pb2.RowKey(table=table, whole=True)]
        else:
            keys = [
                update_pb2.RowKey(table=table, values=key)
                for key in ((row.key, row.old_key) if row.old_key else (row.key,))
            ]
        return tuple(dict.fromkeys(key.SerializeToString(deterministic=True) for key in keys))

    def encoded(self) -> tuple[Schema, bytes]:
        """Its schema, and the bytes of a batch body with it alone: what delivers it again."""
        return self._table(), self.detach()._batch.body.to_bytes()

    def detach(self) -> Update:
        """A copy that holds its own bytes only, for keeping beyond the callback."""
        batch, i = self._batch, self._ordinal
        body = batch.body
        tx = body.transaction_of(i)
        position = body.position_of(tx)
        source, _, number = body.transaction_id(tx).rpartition(":")
        single = ParsedBody(
            updates=(body.updates[i],),
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
            tx_end=(1,) if self.ends_transaction else (),
            marks=body.marks and (body.marks[i],),
        )
        schema = self._table()
        alone = Batch(single, batch.shard, batch.epoch, batch.replayed, lambda _: schema, batch.generation)
        return Update(alone, 0)

    def __repr__(self) -> str:
        return f"<Update {self.id} {self.op.value} {self.table} {self.key!r}>"


def _time(us: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=us) if us else None


def _named(columns: tuple[Column, ...], values: tuple[Value, ...]) -> Mapping[str, Value] | None:
    if values and len(values) != len(columns):
        raise ProtocolError(
            f"row: {len(values)} values for the {len(columns)} columns of its schema",
            hint="the bytes are damaged or come from a faulty sender: report this",
        )
    return {c.name: v for c, v in zip(columns, values, strict=True)} if values else None
