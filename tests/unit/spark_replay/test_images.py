"""Folding: absent never erases, and what a whole write lacks is unknown."""

from __future__ import annotations

import pytest

from spark_replay.images import RowImage, encoded, fold, read_row
from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, decode_row, encode_row, values_of

ID = Column("id", "int")
TABLE = Schema("t", (ID,), (ID, Column("name", "text"), Column("note", "text")))
STORE = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))


def row(op: Op, key: Value, *after: Value, too_large: bool = False) -> Row:
    return decode_row(encode_row(op, (key,), after=after, too_large=too_large))


def image(*values: Value) -> RowImage:
    return fold(None, TABLE, row(Op.READ, values[0], *values))


WIDER = Schema("t", (ID,), (Column("note", "text"), ID, Column("city", "text")))
UNKNOWN = row(Op.UPDATE, 1, 1, UNAVAILABLE, UNAVAILABLE)
UNKNOWN.after[2].ClearField("unavailable")  # PARTIAL_JSON without the document before


@pytest.mark.parametrize(
    ("change", "schema", "values"),
    [
        (row(Op.UPDATE, 1, 1, None, UNAVAILABLE), TABLE, (1, None, "old")),
        (row(Op.INSERT, 1, 1, UNAVAILABLE, "new"), TABLE, (1, UNAVAILABLE, "new")),
        (row(Op.UPSERT, 1, 1, UNAVAILABLE, "new"), TABLE, (1, UNAVAILABLE, "new")),
        (row(Op.UPDATE, 1, too_large=True), TABLE, (1, UNAVAILABLE, UNAVAILABLE)),
        (UNKNOWN, TABLE, (1, "ann", UNAVAILABLE)),
        # Columns are found by name where the table changed.
        (row(Op.UPDATE, 1, UNAVAILABLE, 1, UNAVAILABLE), WIDER, ("old", 1, UNAVAILABLE)),
    ],
)
def test_absent_keeps_the_old_value_and_unknown_does_not(
    change: Row, schema: Schema, values: tuple[Value, ...]
) -> None:
    assert values_of(fold(image(1, "ann", "old"), schema, change).values) == values


def test_a_delete_leaves_nothing_but_the_key() -> None:
    gone = fold(image(1, "ann", "old"), TABLE, row(Op.DELETE, 1))
    found = fold(gone, TABLE, row(Op.UPDATE, 1, UNAVAILABLE, "bob", UNAVAILABLE))
    assert values_of(found.values) == (1, "bob", UNAVAILABLE)


def test_the_operand_of_a_merge_is_not_the_result() -> None:
    found = fold(fold(None, STORE, row(Op.UPSERT, b"k", b"base")), STORE, row(Op.MERGE, b"k", b"+1"))
    assert (values_of(found.values), found.complete) == ((UNAVAILABLE,), False)


@pytest.mark.parametrize("later", [(None, UNAVAILABLE), (UNAVAILABLE, "c"), (UNAVAILABLE, UNAVAILABLE)])
@pytest.mark.parametrize("op", [Op.UPDATE, Op.INSERT, Op.DELETE, Op.MERGE])
def test_changes_that_were_folded_before_their_base_is_known_come_to_the_same(op: Op, later: tuple[Value, ...]) -> None:
    base, change, last = image(1, "ann", "old"), row(op, 1, 1, UNAVAILABLE, "b"), row(Op.UPDATE, 1, UNAVAILABLE, *later)
    both = read_row(encoded(fold(fold(None, TABLE, change), TABLE, last), Op.UPDATE, last=False))
    one_by_one = fold(fold(base, TABLE, change), TABLE, last)
    assert values_of(fold(base, TABLE, both).values) == values_of(one_by_one.values)


def test_an_image_becomes_update_bytes_again() -> None:
    back = decode_row(encoded(image(1, None, UNAVAILABLE), Op.INSERT))
    assert values_of(back.after) == (1, None, UNAVAILABLE)
    assert values_of(back.key) == (1,)


def test_bytes_that_are_no_row_are_reported() -> None:
    with pytest.raises(ArchiveError, match="no valid row"):
        read_row(b"\xff\xff")
