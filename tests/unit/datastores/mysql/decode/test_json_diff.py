from __future__ import annotations

import pytest

from datastores.mysql.decode.json_diff import apply_diffs
from tests.support.mysql_json import Document, Opaque, diff, text
from wormhole.model.errors import DecodeError

REPLACE, INSERT, REMOVE = 0, 1, 2

BEFORE: Document = {
    "a": [1, {"b c": 1.0, "d": "x"}, [None, True]],
    "big": 18446744073709551615,
    "größe": {"": "\n"},
    "n": Opaque(246, bytes.fromhex("05 02 80 7b 2d"), "123.45"),
}


def after(*diffs: bytes) -> str:
    data = b"".join(diffs)
    return apply_diffs(text(BEFORE), b"#" + data + b"#", 1, 1 + len(data))


def expected(**changes: Document) -> str:
    assert isinstance(BEFORE, dict)
    return text({**BEFORE, **changes})


def test_without_changes_the_text_stays() -> None:
    assert after() == text(BEFORE)
    assert apply_diffs("1e100", b"", 0, 0) == "1e100"


@pytest.mark.parametrize(
    ("diffs", "a"),
    [
        ([diff(REPLACE, "$.a[0]", 2)], [2, {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(REPLACE, '$.a[1]."b c"', [1.5e20])], [1, {"b c": [1.5e20], "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[1]", "new")], [1, "new", {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[9]", "last")], [1, {"b c": 1.0, "d": "x"}, [None, True], "last"]),
        ([diff(INSERT, "$.a[1].aa", 7)], [1, {"b c": 1.0, "d": "x", "aa": 7}, [None, True]]),
        ([diff(INSERT, '$.a[1]."\\u00e9\\""', 7)], [1, {"b c": 1.0, "d": "x", 'é"': 7}, [None, True]]),
        ([diff(REMOVE, "$.a[2][0]")], [1, {"b c": 1.0, "d": "x"}, [True]]),
        ([diff(REMOVE, "$.a[1].d"), diff(REMOVE, "$.a[0]")], [{"b c": 1.0}, [None, True]]),
        ([diff(REPLACE, "$.a[last]", 2)], [1, {"b c": 1.0, "d": "x"}, 2]),
        ([diff(REPLACE, "$.a[last-1].d", 2)], [1, {"b c": 1.0, "d": 2}, [None, True]]),
        ([diff(REMOVE, "$.a[last][last-1]")], [1, {"b c": 1.0, "d": "x"}, [True]]),
        ([diff(REMOVE, "$.a[last-2]"), diff(REMOVE, "$.a[last]")], [{"b c": 1.0, "d": "x"}]),
        ([diff(INSERT, "$.a[last-7]", 0)], [0, 1, {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[last]", 0)], [1, {"b c": 1.0, "d": "x"}, 0, [None, True]]),
        ([diff(INSERT, "$.a[last][last-2]", 0)], [1, {"b c": 1.0, "d": "x"}, [0, None, True]]),
        ([diff(INSERT, "$.a[3]", {}), diff(INSERT, "$.a[3].k", "x" * 300)], [1, {"b c": 1.0, "d": "x"}, [None, True], {"k": "x" * 300}]),  # noqa: E501
    ],
)  # fmt: skip
def test_changes_of_one_member(diffs: list[bytes], a: Document) -> None:
    assert after(*diffs) == expected(a=a)


def test_names_that_are_no_ascii_and_empty_ones() -> None:
    assert after(diff(REPLACE, '$.größe.""', "\t")) == expected(größe={"": "\t"})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\3", "operation 3"),
        (b"\0", "length of the path takes"),
        (b"\0\x09$.a", "path takes 9"),
        (diff(REPLACE, "$.a"), "length of the document takes"),
        (b"\0\3$.a\2\5\1", "a number is cut off"),
        (diff(REPLACE, "$", 1), "no path to one place"),
        (diff(REPLACE, "$.*", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last to last]", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last-]", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last-3]", 1), "does not fit"),
        (diff(REMOVE, "$.a[1][last]"), "does not fit"),
        (diff(INSERT, "$.big[last]", 1), "does not fit"),
        (diff(INSERT, "$.a[last-3][0]", 1), "is not in the document"),
        (diff(REPLACE, '$."a', 1), "no path to one place"),
        (diff(REPLACE, '$."\\x"', 1), "is no name"),
        (diff(REPLACE, "$.b", 1), "does not fit"),
        (diff(REPLACE, "$.a[3]", 1), "does not fit"),
        (diff(REPLACE, "$.a.b", 1), "does not fit"),
        (diff(REPLACE, "$.big.b", 1), "does not fit"),
        (diff(REMOVE, "$.a[3]"), "does not fit"),
        (diff(REMOVE, "$[0]"), "does not fit"),
        (diff(INSERT, "$.a", 1), "does not fit"),
        (diff(INSERT, "$.a.b", 1), "does not fit"),
        (diff(INSERT, "$.b.c", 1), "is not in the document"),
        (diff(INSERT, "$.a[7][0]", 1), "is not in the document"),
    ],
)
def test_changes_that_do_not_fit_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        after(data)
