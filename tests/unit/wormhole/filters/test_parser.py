from __future__ import annotations

from decimal import Decimal

import pytest

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
    Moved,
    Not,
    OpIn,
    Or,
    StartsWith,
    TableIn,
    TableMatches,
    WholeKey,
)
from wormhole.model.errors import FilterError
from wormhole.model.values import Op

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
