"""Updates as tests write them, and the batch bodies that carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import column_type, encode_row
from wormhole.wire.v1 import update_pb2

__all__ = ["Change", "body_of", "read", "update"]


@dataclass(slots=True, frozen=True)
class Change:
    """One update to be committed: its schema, its encoded row and its mark (``wormhole.wire.v1.Mark``)."""

    schema: Schema
    row: bytes
    mark: int = 0


def update(
    table: str,
    *,
    key: Value | tuple[Value, ...] | Mapping[str, Value],
    before: Mapping[str, Value] | None = None,
    after: Mapping[str, Value] | None = None,
    op: Op | None = None,
    old_key: Value | tuple[Value, ...] = (),
    key_end: Value | tuple[Value, ...] = (),
    entered: bool = False,
    left: bool = False,
) -> Change:
    """A change of one row or key.

    ``key``: one value, a tuple of them, or a mapping that names the key columns (``id`` or ``key1``, ``key2`` ...
    otherwise). ``op`` follows from the arguments: before and after = update, after = insert, otherwise delete. A column
    that is in only one of ``before`` and ``after`` is ``UNAVAILABLE`` in the other. ``entered`` and ``left``: the marks
    that a filter of the application would set. ``left`` with neither before nor after is the key-only upsert of a log
    without earlier values.
    """
    if isinstance(key, Mapping):
        names, keys = tuple(str(name) for name in key), tuple(key.values())
    else:
        keys = key if isinstance(key, tuple) else (key,)
        names = ("id",) if len(keys) == 1 else tuple(f"key{i}" for i in range(1, len(keys) + 1))
    columns = tuple(dict.fromkeys((*(before or ()), *(after or ()))))
    if op is None:
        key_only = left and before is None and after is None
        op = Op.UPSERT if key_only else Op.DELETE if after is None else Op.INSERT if before is None else Op.UPDATE

    def typed(name: str) -> Column:
        values = [side[name] for side in (after, before) if side is not None and side.get(name) is not None]
        return Column(name, column_type(values[0] if values else None))

    schema = Schema(
        table,
        tuple(Column(name, column_type(value)) for name, value in zip(names, keys, strict=True)),
        tuple(map(typed, columns)),
    )
    row = encode_row(
        op,
        keys,
        after=[] if after is None else [after.get(name, UNAVAILABLE) for name in columns],
        before=[] if before is None else [before.get(name, UNAVAILABLE) for name in columns],
        old_key=old_key if isinstance(old_key, tuple) else (old_key,),
        key_end=key_end if isinstance(key_end, tuple) else (key_end,),
    )
    return Change(schema, row, update_pb2.ENTERED if entered else update_pb2.LEFT if left else 0)


def read(table: str, *, key: Value | tuple[Value, ...] | Mapping[str, Value], after: Mapping[str, Value]) -> Change:
    """An existing row, as a backfill reads it: ``key`` and ``after`` as for :func:`update`."""
    return update(table, key=key, after=after, op=Op.READ)


def body_of(
    changes: Sequence[Change],
    *,
    source: str = "test",
    number: int = 1,
    first_index: int = 0,
    ends: bool = True,
    incarnation: int = 1,
    file: int = 1,
    committed_at_us: int = 0,
    offset: int | None = None,
) -> bytes:
    """A batch body with ``changes`` as one transaction, ``<source>:<number>``, or as a piece of one (``ends`` false).

    The transaction's place in the log is ``incarnation/file/offset``. The default of ``offset`` is ``number``.
    """
    offset = number if offset is None else offset
    schemas = list(dict.fromkeys(change.schema for change in changes))
    return update_pb2.BatchBody(
        updates=[change.row for change in changes],
        schema_ids=[schema.id for schema in schemas],
        schema_index=[schemas.index(change.schema) for change in changes] if len(schemas) > 1 else [],
        first_index=first_index,
        sources=[source],
        tx_number=[number],
        incarnation=incarnation,
        tx_file=[file],
        tx_offset=[offset if ends else offset - 1],
        tx_committed_at_us=[committed_at_us],
        tx_end=[len(changes)] if ends else [],
        marks=[update_pb2.Mark.Name(change.mark) for change in changes] if any(c.mark for c in changes) else [],
    ).SerializeToString()
