"""Tests of single values; ``tests/property/test_filters.py`` has whole filters over whole rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from wormhole.filters.leaf_tests import Names, general_test, record_test, simple_test
from wormhole.filters.normal import normalise
from wormhole.filters.parser import parse
from wormhole.filters.tree import Leaf, Not
from wormhole.filters.view import Head, Reader
from wormhole.formats import ABSENT, COMPOSITE, FormatSpec, ValueFormats, open_formats
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row

STORE = Schema("users", (Column("key", "bytes"),), (Column("value", "bytes"),))
ROWS = Schema("users", (Column("id", "int"),), (Column("email", "text"), Column("age", "int")))


def leaf_of(text: str) -> tuple[Leaf, bool]:
    normal = normalise(parse(text))
    return (normal.term, True) if isinstance(normal, Not) else (normal, False)  # type: ignore[return-value]


def may(text: str, found: Any) -> bool:
    formats = open_formats(FormatSpec("json"), {})
    names = Names(STORE, Reader(STORE, formats))
    leaf, negated = leaf_of(text)
    test = record_test(leaf, negated, names)
    return test((b"k", found))


@pytest.mark.parametrize(
    ("text", "passes", "fails"),
    [
        ('f == "a"', ["a", b"a"], ["b", b"b", None]),
        ('f != "a"', ["b", b"b", None], ["a", b"a"]),
        ("f == 0xff", [b"\xff"], ["a", "\xff"]),
        ("f == 1", [1, 1.0, Decimal(1)], [2, None]),
        ("f == 0.1", [0.1, Decimal("0.1")], [0.2, Decimal("0.10000000000000001"), None]),
        ("f in (0.1, 2)", [0.1, Decimal("0.1"), 2], [0.2, 3, None]),
        ("f not in (1, 2)", [3, None], [1, 2.0]),
        ("f > 10", [11, 10.5, Decimal("1e400")], [10, 9]),
        ('f >= "b"', ["b", "é"], ["a", ""]),
        ("f == true", [True], [False, None]),
        ('f startswith "a"', ["ab", b"ab"], ["b", None]),
        ('not f startswith "a"', ["b", None], ["ab"]),
        ("f is null", [None], [0, "", ABSENT, COMPOSITE]),
        ("f is not null", [0, ABSENT], [None]),
        ("f is absent", [ABSENT], [None, "", COMPOSITE]),
        ("f is not absent", [None, ""], [ABSENT]),
        ("hash(key) % 1 == 0", ["whatever"], []),
        ("key == 'x'", [], ["whatever"]),
    ],
)
def test_what_passes(text: str, passes: list[Any], fails: list[Any]) -> None:
    assert [found for found in passes if not may(text, found)] == []
    assert [found for found in fails if may(text, found)] == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ('f == "a"', [1, True, ABSENT, UNAVAILABLE, COMPOSITE]),
        ("f == 1", ["1", True, ABSENT, UNAVAILABLE, COMPOSITE, float("nan"), Decimal("NaN")]),
        ("f > 1", [None, "x", ABSENT, UNAVAILABLE]),
        ("f in (1, 2)", ["x", ABSENT, UNAVAILABLE]),
        ("f == true", [1, "true", ABSENT]),
        ('f startswith "a"', [1, ABSENT, UNAVAILABLE]),
        ("f is null", [UNAVAILABLE]),
        ("f is absent", [UNAVAILABLE]),
    ],
)
def test_what_has_no_answer_passes_under_not_too(text: str, unknown: list[Any]) -> None:
    for found in unknown:
        assert may(text, found), found
        assert may(f"not {text}", found), found


def test_names_are_columns_or_fields_of_the_value() -> None:
    columns = Names(ROWS, Reader(ROWS, ValueFormats()))
    fields = Names(STORE, Reader(STORE, open_formats(FormatSpec("json"), {})))
    for text, in_columns, in_value in (("email == 'x'", 1, 1), ("age == 1", 2, 2), ("`key` == 'x'", None, 3)):
        leaf, _ = leaf_of(text)
        assert columns.slot(leaf.subject) == in_columns  # type: ignore[union-attr]
        assert fields.slot(leaf.subject) == in_value  # type: ignore[union-attr]
    nested, _ = leaf_of("a.b == 1")
    assert columns.slot(nested.subject) is None  # type: ignore[union-attr]
    key, _ = leaf_of("id == 1")
    assert (columns.key(key.subject), columns.slot(key.subject)) == (0, None)  # type: ignore[union-attr]
    assert simple_test(*leaf_of("email == 'x'"), columns)(b"k")


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (["a", 1], ["b", 1], True),
        (["a", 1], ["a", 2], False),
        ([None, 1], ["a", 1], True),
        ([None, 1], [None, 1], False),
        (["1", 1], [1, 1], True),
        ([True, 1], [1, 1], True),
        ([UNAVAILABLE, 1], ["a", 1], None),
        (["a", 1], [UNAVAILABLE, 1], None),
        ([], ["a", 1], None),
    ],
)
def test_changed(before: list[Any], after: list[Any], changed: bool | None) -> None:
    row = encode_row(Op.UPDATE, [1], before=before, after=after)
    head = Head(row, 0, len(row))
    reader = Reader(ROWS, ValueFormats())
    head.read(reader)
    names = Names(ROWS, reader)
    for text, expected in (("changed(email)", changed), ("not changed(email)", changed is not None and not changed)):
        wanted = True if changed is None else expected
        assert general_test(*leaf_of(text), names)(head.new) is wanted
