from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.visible import visible, visible_json, visible_lines

ATTACKS = [
    "\x1b]0;owned\x07",  # sets the window's title
    "\x1b[2J\x1b[H",  # clears the screen
    "\x9b31m",  # the same introducer in one C1 character
    "a\rb",  # writes over the line
    "a\x08b",
    "a\u202eb",  # reverses what follows
    "a\u2066b\u2069",
    "a\u2028b",
    "a\x7fb",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_controls_a_terminal_is_left(attack: str) -> None:
    for shown in (visible(attack), visible_lines(attack)):
        assert not any(unicodedata.category(each) in {"Cc", "Zl", "Zp", "Cs"} for each in shown)
        assert not any(unicodedata.bidirectional(each) in {"RLO", "LRO", "RLE", "LRE", "PDF", "LRI"} for each in shown)


def test_escapes_are_those_of_python_and_the_rest_stays() -> None:
    assert visible("a\x1b[1m\nb\té€𝄞\u202e") == "a\\x1b[1m\\nb\té€𝄞\\u202e"


def test_a_forged_line_is_seen_to_belong_to_the_one_before() -> None:
    assert visible_lines("gone\r\nerror: all lost\n\x1b[0m") == "gone\n    error: all lost\n    \\x1b[0m"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value(text: str) -> None:
    dumped = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(visible_json(dumped)) == {"text": text}
    assert visible(visible_json(dumped)) == visible_json(dumped)
