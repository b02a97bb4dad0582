"""What the URLs of database servers have alike."""

from __future__ import annotations

import pytest

from datastores.common.url_parts import UrlParts, options_of


def test_parts_are_decoded_and_what_is_left_open_is_empty() -> None:
    url = UrlParts.parse("db://a%20b:p%40ss@h.example:77/x?o=1#f", ("db",), "db://host")
    assert url == UrlParts("db", "a b", "p@ss", "h.example", 77, "/x", "o=1", "f")
    bare = UrlParts.parse("db://h", ("db",), "db://host")
    assert (bare.user, bare.password, bare.port) == ("", None, 0)
    assert "p@ss" not in repr(url)


@pytest.mark.parametrize("text", ["db://h:port", "other://h", "db:h", "DB:///"])
def test_what_is_no_such_url_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match="must be db://host"):
        UrlParts.parse(text, ("db",), "db://host")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("secret=1", "unknown option; known are a, cert, key"),
        ("a=/1&a=/2", "each option once"),
        ("a=", "each option once, with a value"),
        ("a=relative", "must give a as an absolute path"),
        ("cert=c", "cert and key together"),
    ],
)
def test_options_are_known_given_once_and_fit(query: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        options_of(query, ("a", "cert", "key"), ("a",), ("cert", "key"))
    assert "secret" not in str(refused.value)
    assert options_of("a=/x&cert=c&key=k", ("a", "cert", "key"), ("a",), ("cert", "key"))["a"] == "/x"
