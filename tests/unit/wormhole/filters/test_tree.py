from __future__ import annotations

from decimal import Decimal

import pytest

from wormhole.filters.tree import (
    And,
    Compare,
    Const,
    Field,
    In,
    KeyPart,
    Literal,
    Not,
    OpIn,
    Or,
    TableIn,
    WholeKey,
    leaves,
    write,
    write_literal,
)
from wormhole.model.values import Op

A, B, C = TableIn(("a",)), OpIn((Op.DELETE,)), Compare(KeyPart(0), "<", b"x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"user:", 'b"user:"'),
        (b'"\\', 'b"\\"\\\\"'),
        (b"\x00\xff", "0x00ff"),
        (b"", 'b""'),
        ("é\n", '"é\\n"'),
        ("\x07", '"\\u0007"'),
        (True, "true"),
        (-12, "-12"),
        (Decimal("1.50"), "1.50"),
        (Decimal(2), "2.0"),
    ],
)
def test_literals_are_written_as_they_are_read(value: Literal, text: str) -> None:
    assert write_literal(value) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (And((A, Or((B, C)))), 'table == "a" and (op == "delete" or key[0] < b"x")'),
        (Or((And((A, B)), C)), 'table == "a" and op == "delete" or key[0] < b"x"'),
        (Not(And((A, B))), 'not (table == "a" and op == "delete")'),
        (Not(A), 'table != "a"'),
        (Not(In(Field("or"), (1, 2))), "`or` not in (1, 2)"),
        (Not(C), 'not key[0] < b"x"'),
        (Not(Not(Const(True))), "not not true"),
    ],
)
def test_parentheses_are_where_they_are_needed(expr: And | Or | Not, text: str) -> None:
    assert write(expr) == text


def test_columns_do_not_make_trees_differ_but_kinds_of_values_do() -> None:
    assert TableIn(("a",), at=3) == A
    assert Compare(WholeKey(), "==", 1) != Compare(WholeKey(), "==", True)
    assert In(WholeKey(), (1,)) != In(WholeKey(), (True,))
    assert len({Compare(WholeKey(), "==", 1), Compare(WholeKey(), "==", True), In(WholeKey(), (1,))}) == 3


def test_leaves_come_from_left_to_right() -> None:
    assert list(leaves(And((A, Not(Or((B, Const(True), C))))))) == [A, B, C]
