"""JSON of somebody else: a value whose numbers and texts can be used, or a ValueError."""

from __future__ import annotations

import json

import pytest

from wormhole.model.json_input import read_json


@pytest.mark.parametrize("value", [None, [1.5, -(10**39), "é\U0001f600", {"a": [True]}], {}, "\u2028", 1 << 64])
def test_what_is_right_is_read(value: object) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "Infinity",
        "[-Infinity]",
        "NaN",
        "1e999",
        "9" * 41,
        "9" * 5000,
        '"\\ud800"',
        '{"\\uDFFF": 1}',
        "",
        "{",
        b"\xff",
        b'"\xed\xa0\x80"',
    ],
)
def test_all_else_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError) as told:
        read_json(text)
    assert len(str(told.value)) < 200
