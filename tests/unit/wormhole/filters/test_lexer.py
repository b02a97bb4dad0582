from __future__ import annotations

from decimal import Decimal

import pytest

from wormhole.filters.lexer import MAX_TEXT, fail, tokenize
from wormhole.filters.tree import Literal
from wormhole.model.errors import FilterError


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
