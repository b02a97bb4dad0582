"""Conditions over keys, as SQL."""

from __future__ import annotations

import pytest

from datastores.mysql.existing_rows.key_order import KeyColumn, above, among, literal, order_by, up_to
from wormhole.wire.v1.update_pb2 import Value

A, DOWN = KeyColumn("a", "int"), KeyColumn("d", "int", descending=True)
B = KeyColumn("b`c", "varchar", "latin1", "latin1_bin")
RANK = KeyColumn("r", "enum", members=("low", "mid", "high"))


def test_a_condition_over_several_columns_is_written_out() -> None:
    assert above([A], ["1"]) == "(`a` > 1)"
    assert above([A, B], ["1", "'x'"]) == "(`a` > 1 OR ((`a` = 1) AND `b``c` > 'x'))"
    assert up_to([A, B], ["1", "'x'"]) == "((`a` < 1 OR ((`a` = 1) AND `b``c` < 'x')) OR (`a` = 1 AND `b``c` = 'x'))"
    assert among([A, B], [["1", "'x'"], ["2", "'y'"]]) == "((`a` = 1 AND `b``c` = 'x') OR (`a` = 2 AND `b``c` = 'y'))"


def test_a_descending_column_is_compared_the_other_way() -> None:
    assert above([A, DOWN], ["1", "2"]) == "(`a` > 1 OR ((`a` = 1) AND `d` < 2))"
    assert up_to([DOWN], ["2"]) == "((`d` > 2) OR (`d` = 2))"
    assert order_by([A, DOWN]) == "`a`, `d` DESC"


def test_members_of_an_enum_are_listed() -> None:
    """The server makes ranges of them for equality only."""
    assert above([RANK], [literal(RANK, Value(text="low"))]) == "(`r` IN (2, 3))"
    assert above([RANK], [literal(RANK, Value(text="high"))]) == "(FALSE)"
    assert up_to([RANK], [literal(RANK, Value(text="low"))]) == "((`r` IN (0)) OR (`r` = 1))"
    assert literal(RANK, Value(text="")) == "0"  # the error value


@pytest.mark.parametrize(
    ("column", "value", "sql"),
    [
        (A, Value(int=-5), "-5"),
        (A, Value(uint=18446744073709551615), "18446744073709551615"),
        (KeyColumn("k", "bit"), Value(uint=3), "3"),
        (KeyColumn("k", "decimal"), Value(decimal="-1.50"), "-1.50"),
        (KeyColumn("k", "double"), Value(double=0.1), "1.00000000000000006e-01"),
        (KeyColumn("k", "float"), Value(double=0.1), "1.00000001490116119e-01"),
        (KeyColumn("k", "datetime"), Value(text="0000-00-00 00:00:00"), "'0000-00-00 00:00:00'"),
        (B, Value(text="a'ä"), "CONVERT(_utf8mb4 x'6127c3a4' USING latin1) COLLATE latin1_bin"),
        (KeyColumn("k", "varbinary"), Value(bytes=b"a'"), "x'6127'"),
        (KeyColumn("k", "uuid"), Value(bytes=bytes(16)), "CAST('00000000-0000-0000-0000-000000000000' AS UUID)"),
        (KeyColumn("k", "inet4"), Value(bytes=b"\x7f\0\0\1"), "CAST('127.0.0.1' AS INET4)"),
        (KeyColumn("k", "inet6"), Value(bytes=bytes(15) + b"\1"), "CAST('::1' AS INET6)"),
    ],
)
def test_values_as_sql(column: KeyColumn, value: Value, sql: str) -> None:
    assert literal(column, value) == sql


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (A, Value(text="1 OR 1")),
        (A, Value(null=True)),
        (A, Value()),
        (B, Value(bytes=b"\xff")),
        (KeyColumn("k", "decimal"), Value(decimal="1 OR 1")),
        (KeyColumn("k", "decimal"), Value(decimal="")),
        (KeyColumn("k", "date"), Value(text="2024' OR '1")),
        (KeyColumn("k", "uuid"), Value(bytes=b"short")),
        (KeyColumn("k", "inet4"), Value(bytes=b"short")),
        (RANK, Value(text="none")),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(column: KeyColumn, value: Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal(column, value)
