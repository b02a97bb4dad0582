"""Rows of a COPY become READ updates, with the bytes that the log's decoder gives the same values."""

from __future__ import annotations

from types import ModuleType

import pytest

from datastores.postgres.decode.messages import Relation, RelationColumn
from datastores.postgres.decode.table import Table
from datastores.postgres.decode.tables import Tables
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, encode_key, encode_row

copied_rows = hot_module("datastores.postgres.existing_rows.copied_rows")

_ENOUGH = 1 << 30


def table(*types: int, key: int = 1) -> Table:
    """Columns of these types, the first ``key`` of them the key."""
    columns = tuple(RelationColumn(f"c{at}", one, -1, at < key) for at, one in enumerate(types))
    return Tables("log", Sharding("log")).learn(Relation(1, "public", "t", "d", columns))


def test_every_escape_and_null(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23, 25, 17), 1 << 20)
    found: dict[bytes, bytes] = {}
    assert (
        rows.add([b"1\ta\\tb\\n\\\\N\\b\\f\\r\\v\t\\\\x00ff\n", b"2\t\\N\t\\N\n", b"3\t\t\\\\x\n"], found, _ENOUGH) == 3
    )
    expected = [(1, "a\tb\n\\N\b\f\r\v", b"\x00\xff"), (2, None, None), (3, "", b"")]
    assert found == {encode_key(values[:1]): encode_row(Op.READ, values[:1], after=values) for values in expected}
    assert rows.size == sum(map(len, found.values()))


@pytest.mark.parametrize("size", [0, 127, 128, 255, 256, 70_000])
def test_sizes_and_a_key_of_two_columns(copied_rows: ModuleType, size: int) -> None:
    rows = copied_rows.CopiedRows(table(25, 20, 16, key=2), 1 << 20)
    found: dict[bytes, bytes] = {}
    rows.add([b"x" * size + b"\t-5\tt\n"], found, _ENOUGH)
    values = ("x" * size, -5, True)
    assert found == {encode_key(values[:2]): encode_row(Op.READ, values[:2], after=values)}


def test_it_ends_when_it_is_full(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23), 1 << 20)
    found: dict[bytes, bytes] = {}
    lines = [b"%d\n" % n for n in range(10)]
    one = len(encode_row(Op.READ, (1,), after=(1,)))
    assert rows.add(lines, found, 3 * one) == 3
    assert rows.add(lines[3:], found, 3 * one) == 1, "one is added at least"
    assert len(found) == 4


def test_a_row_over_the_limit_comes_without_its_values(copied_rows: ModuleType) -> None:
    rows = copied_rows.CopiedRows(table(23, 25, 25), 100, True)
    found: dict[bytes, bytes] = {}
    rows.add([b"1\ta\tb\tf\n", b"2\t\\N\t\\N\tt\n", b"3\t" + b"x" * 60 + b"\t" + b"y" * 60 + b"\tf\n"], found, _ENOUGH)
    updates = [decode_row(update) for update in found.values()]
    assert [(update.too_large, len(update.after)) for update in updates] == [(False, 3), (True, 0), (True, 0)]
    assert found[encode_key((2,))] == encode_row(Op.READ, (2,), too_large=True)


@pytest.mark.parametrize("line", [b"1\n", b"1\t2\t3\n", b"\t" * 70_000 + b"\n", b"one\tx\n", b"\\N\\N\tx\n"])
def test_what_is_no_row_of_the_table(copied_rows: ModuleType, line: bytes) -> None:
    with pytest.raises(DecodeError, match=r"public\.t"):
        copied_rows.CopiedRows(table(23, 25), 1 << 20).add([line], {}, _ENOUGH)
