from __future__ import annotations

import pytest

from datastores.mysql.decode.lexer import Dialect, Tokens
from wormhole.model.errors import DecodeError


def split(sql: str, dialect: Dialect | None = None) -> list[tuple[str, str]]:
    tokens, found = Tokens(sql, dialect or Dialect()), []
    while tokens.kind:
        found.append((tokens.kind, tokens.text))
        tokens.next()
    return found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a b\tc\x0b\x0cd", [("word", "a"), ("word", "b"), ("word", "c"), ("word", "d")]),
        ("a€\u0301\u3000\xa0\u2028$_9", [("word", "a€\u0301\u3000\xa0\u2028$_9")]),
        ("--x", [("other", "-"), ("other", "-"), ("word", "x")]),
        ("-- x\n--\x01y\n--", []),
        ("/*!50100 a */b/*!1 c */", [("word", "a"), ("word", "b"), ("word", "1"), ("word", "c")]),
        ("/*M! a */ b /* c", [("word", "b")]),
        ("`a``b``", [("quoted", "`a``b``")]),
        ("'a\\'b''c' d", [("string", "'a\\'b''c'"), ("word", "d")]),
        ("0xAB 0xAg x'ab' 0x", [("hex", "0xAB"), ("word", "0xAg"), ("hex", "x'ab'"), ("word", "0x")]),
    ],
)
def test_tokens(sql: str, expected: list[tuple[str, str]]) -> None:
    assert split(sql) == expected


def test_what_sql_mode_and_server_change() -> None:
    ansi, plain = Dialect(sql_mode=4), Dialect(sql_mode=1 << 20)
    assert split('"a\\" "b', ansi) == [("quoted", '"a\\"'), ("quoted", '"b')]
    assert split("'a\\' 'b'", plain) == [("string", "'a\\'"), ("string", "'b'")]
    assert split('"a\\" b"', Dialect()) == [("string", '"a\\" b"')]
    assert split("/*M!100100 a */", Dialect(mariadb=True)) == [("word", "a")]
    assert split("a\xa0b", Dialect(spaces="\xa0")) == [("word", "a"), ("word", "b")]


def test_names() -> None:
    tokens = Tokens('`a``b` "c""d" 0xAB e\udc80f 😀 ;', Dialect())
    assert [tokens.name() for _ in range(6)] == ["a`b", 'c"d', "0xAB", None, "?", None]
    assert Tokens("`ÄB`", Dialect(folds=True)).name() == "äb"


def test_values() -> None:
    tokens = Tokens("x'616' 0x6 'a\\nb''c'", Dialect())
    assert [tokens.value() for _ in range(3)] == [b"\x06\x16", b"\6", b"a\nb'c"]
    with pytest.raises(DecodeError):
        tokens.value()


@pytest.mark.parametrize(
    ("mariadb", "mode", "substitutes"), [(True, 0, True), (True, 1 << 30, False), (False, 0, False)]
)
def test_where_another_engine_may_have_been_taken(mariadb: bool, mode: int, substitutes: bool) -> None:
    assert Dialect(mariadb, mode).substitutes_engines is substitutes
