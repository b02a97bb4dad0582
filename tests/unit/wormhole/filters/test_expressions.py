"""The language of filters, from characters to its normal form."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from wormhole.filters.leaf_tests import Names, general_test, record_test, simple_test
from wormhole.filters.lexer import MAX_TEXT, fail, tokenize
from wormhole.filters.normal import content_hash, normalise
from wormhole.filters.parser import MAX_DEPTH, parse
from wormhole.filters.tree import (
    And,
    Changed,
    Compare,
    Const,
    Expr,
    Field,
    HashIn,
    In,
    Is,
    KeyPart,
    Leaf,
    Literal,
    Moved,
    Not,
    OpIn,
    Or,
    StartsWith,
    TableIn,
    TableMatches,
    WholeKey,
    leaves,
    write,
    write_literal,
)
from wormhole.filters.view import Head, Reader
from wormhole.formats import ABSENT, COMPOSITE, FormatSpec, ValueFormats, open_formats
from wormhole.model.errors import FilterError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row

# --- Words


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\tb"', "a\tb"),
        ("'it\\'s'", "it's"),
        ('"\\u00e9\\U0001f600"', "é😀"),
        ('b"\\xff\\0"', b"\xff\0"),
        ("0x00FF", b"\0\xff"),
        ("0x", b""),
        ("-17", -17),
        ("1.50", Decimal("1.50")),
    ],
)
def test_values(text: str, value: Literal) -> None:
    token, end = tokenize(f"  {text} ")
    assert (token.kind, token.value, type(token.value), token.at) == ("value", value, type(value), 2)
    assert (end.kind, end.at) == ("end", len(text) + 3)


def test_words_signs_and_names() -> None:
    kinds = [(token.kind, token.text) for token in tokenize("key<=b and `a``b`")]
    assert kinds[:-1] == [("word", "key"), ("sign", "<="), ("word", "b"), ("word", "and"), ("name", "`a``b`")]
    assert tokenize("`a``b`")[0].value == "a`b"


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("a = 1", 3, "a single = compares nothing"),
        ("key == 'a", 8, "not closed"),
        ("key == 'a\n'", 8, "not closed"),
        ('key == b"é"', 10, "bytes are written in ASCII"),
        ('key == b"\\xg0"', 10, "needs 2 hexadecimal digits"),
        ('key == b"\\u00e9"', 10, "no such escape"),
        ('key == "\\x41"', 9, "no such escape"),
        ('key == "\\ud800"', 9, "is no character"),
        ('key == "\\U00110000"', 9, "is no character"),
        ("key == 0xabc", 8, "two digits each"),
        ("key == 12ab", 8, "begins nothing"),
        ("key == " + "9" * 81, 8, "at most 80 digits"),
        ("`a", 1, "not closed"),
        ("key ; 1", 5, "begins nothing"),
        ('"\ud800"', 2, "surrogate"),
    ],
)
def test_errors_point_at_the_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(FilterError, match=f"column {column}: .*{problem}"):
        tokenize(text)


def test_the_arrow_is_under_the_place_in_its_line() -> None:
    with pytest.raises(FilterError) as caught:
        fail("true and\n\tkey ? 1", 14, "no", "yes")
    assert caught.value.text.splitlines() == [
        "filter, line 2, column 6: no",
        "   key ? 1",
        "       ^",
        "  allowed here: yes",
    ]


def test_only_the_surroundings_of_a_place_in_a_long_line_are_shown() -> None:
    text = "x" * 500 + "?" + "y" * 500
    with pytest.raises(FilterError) as caught:
        fail(text, 500, "no")
    line, arrow = str(caught.value).splitlines()[1:]
    assert len(line) < 120
    assert line[arrow.index("^")] == "?"


def test_a_filter_has_a_length() -> None:
    with pytest.raises(FilterError, match=f"more than {MAX_TEXT}"):
        tokenize(" " * (MAX_TEXT + 1))


# --- Grammar


KEY = WholeKey()


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ('op == "delete"', OpIn((Op.DELETE,))),
        ('op not in ("upsert", "merge")', Not(OpIn((Op.UPSERT, Op.MERGE)))),
        ('table == "t"', TableIn(("t",))),
        ('table matches "shop.*"', TableMatches(("shop.*",))),
        ('table matches ("a", "b*")', TableMatches(("a", "b*"))),
        ('key == "a"', Compare(KEY, "==", "a")),
        ("key != 0xff", Not(Compare(KEY, "==", b"\xff"))),
        ('"a" == key', Compare(KEY, "==", "a")),
        ("3 > key[1]", Compare(KeyPart(1), "<", 3)),
        ("key[65535] == 1", Compare(KeyPart(65535), "==", 1)),
        ('b"a" <= key < b"b"', And((Compare(KEY, ">=", b"a"), Compare(KEY, "<", b"b")))),
        ('"b" > key >= "a"', And((Compare(KEY, "<", "b"), Compare(KEY, ">=", "a")))),
        ("key in (1, 2.5)", In(KEY, (1, Decimal("2.5")))),
        ('key startswith b"user:"', StartsWith(KEY, b"user:")),
        ('prefix(name, "é")', StartsWith(Field("name"), "é")),
        ("hash(key) % 1 == 0", HashIn(1, (0,))),
        ("hash(key) % 16 == 3", HashIn(16, (3,))),
        ("hash(key) % 16 in (3, 4)", HashIn(16, (3, 4))),
        ("changed(email)", Changed(Field("email"))),
        ('changed("two words")', Changed(Field("two words"))),
        ("email is null", Is(Field("email"), "null")),
        ("email is not absent", Not(Is(Field("email"), "absent"))),
        ("customer.`the name`.key == 1", Compare(Field("customer", ("the name", "key")), "==", 1)),
        ("changed(a.b)", Changed(Field("a", ("b",)))),
        ("entered or left", Or((Moved("entered"), Moved("left")))),
        ("`key` == true", Compare(Field("key"), "==", True)),
        ("false == paid", Compare(Field("paid"), "==", False)),
        ("not true or true and false", Or((Not(Const(True)), And((Const(True), Const(False)))))),
        ("true and (true or false)", And((Const(True), Or((Const(True), Const(False)))))),
        ("((true))", Const(True)),
    ],
)
def test_what_a_text_means(text: str, expr: Expr) -> None:
    assert parse(text) == expr


@pytest.mark.parametrize(
    ("text", "column", "problem", "allowed"),
    [
        ("", 1, "ends too early", "table, op, key"),
        ("key", 4, "ends too early", "startswith"),
        ('key startwith "a"', 5, "startwith does not fit", "startswith"),
        ('op == "delet"', 7, "no operation", '"delete"'),
        ("op == delete", 7, "does not fit", '"delete"'),
        ('op < "delete"', 4, "does not fit", "not in"),
        ("key == ", 8, "ends too early", "number"),
        ("key == or", 8, "or does not fit", "number"),
        ("key[-1] == 1", 5, "-1 does not fit", "from 0"),
        ("key[65536] == 1", 5, "65536 does not fit", "from 0"),
        ("key in ()", 9, "does not fit", "number"),
        ('key in ("a", 1)', 5, "mixes", "one kind"),
        ("hash(key) % 0 == 0", 13, "does not fit", "from 1"),
        ("hash(key) % 4 == 4", 18, "does not fit", "from 0 to 3"),
        ("hash(key) == 4", 11, "does not fit", '"%"'),
        ('b"a" <= key > b"b"', 13, "one direction", ""),
        ("1 == key < 2", 10, "one direction", ""),
        ("x < true", 1, "no order", "=="),
        ("true true", 6, "does not fit", "end of the filter"),
        ("true and", 9, "ends too early", "table"),
        ("(true", 6, "ends too early", '"\\)"'),
        ("not in (1)", 5, "in does not fit", "table"),
        ('table like "x"', 7, "does not fit", "matches"),
        ("table matches 3", 15, "does not fit", "pattern"),
        ("prefix(key, 3)", 13, "does not fit", "text"),
        ("a == null", 6, "nothing is compared with null", "is null, is not null"),
        ("a is 3", 6, "does not fit", "null, absent, not null, not absent"),
        ("a is not 3", 10, "does not fit", "null, absent"),
        ("a.3 == 1", 3, "does not fit", "the name of a part"),
        (f"{'a.' * 64}a == 1", 131, "at most 64 parts", ""),
        ("changed(3)", 9, "does not fit", "field name"),
        ("3 and true", 3, "does not fit", "key or a field"),
    ],
)
def test_errors_say_where_and_what_is_allowed(text: str, column: int, problem: str, allowed: str) -> None:
    with pytest.raises(FilterError, match=f"(?s)column {column}: .*{problem}.*{allowed}"):
        parse(text)


def test_nesting_has_a_depth() -> None:
    parse("not " * MAX_DEPTH + "true")
    parse("(" * MAX_DEPTH + "true" + ")" * MAX_DEPTH)
    for text in ("not " * (MAX_DEPTH + 1) + "true", "(" * (MAX_DEPTH + 1)):
        with pytest.raises(FilterError, match="nested deeper"):
            parse(text)


# --- The tree


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


# --- The normal form


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('key == "a"', 'key == b"a"'),
        ('key in ("b", "a", b"a")', 'key in (b"a", b"b")'),
        ('key in ("a")', 'key == b"a"'),
        ("not not key == 2.0", "key == 2"),
        ("key < 1.50", "key < 1.5"),
        ("not key < 1", "key >= 1"),
        ('not (op == "delete" or key > 1)', 'key <= 1 and op != "delete"'),
        ('op in ("delete", "insert", "delete")', 'op in ("insert", "delete")'),
        ("key > 1 and (key > 1 and key < 3)", "key < 3 and key > 1"),
        ("true and key > 1 or false", "key > 1"),
        ("key > 1 or true", "true"),
        ('table matches ("a", "*")', "true"),
        ('not key startswith ""', 'not key startswith b""'),
        ("hash(key) % 2 in (1, 0)", "hash(key) % 2 in (0, 1)"),
        ("hash(key) % 3 in (1, 0, 1)", "hash(key) % 3 in (0, 1)"),
        ("not changed(a)", "not changed(a)"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    assert write(normalise(parse(text))) == normal


def test_many_digits_stay_exact() -> None:
    assert write(normalise(parse("key == 1." + "2" * 60 + "0"))) == "key == 1." + "2" * 60


def test_the_hash_is_stored_with_datamarkers_and_may_not_change_between_releases() -> None:
    assert content_hash(normalise(parse("true"))) == "b5bea41b6c623f7c"
    assert content_hash(normalise(parse('op == "delete" and key startswith "user:"'))) == "62507318a8a3370b"


# --- Tests of single values; ``tests/property/test_filters.py`` has whole filters over whole rows


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
