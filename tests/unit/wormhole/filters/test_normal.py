from __future__ import annotations

import pytest

from wormhole.filters.normal import content_hash, normalise
from wormhole.filters.parser import parse
from wormhole.filters.tree import write


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
