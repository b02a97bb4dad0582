"""What the demo prints fits: at most 60 lines of 100 columns, and every word is in the glossary."""

from __future__ import annotations

import io
import re

import pytest

from examples.demo.checker import Verdict
from examples.demo.story import MOST_LINES, WIDTH, Story, short_shards, table
from scripts.prepare import ROOT


def test_it_never_prints_more_than_fits() -> None:
    out = io.StringIO()
    story = Story(out)
    for _ in range(100):
        story.progress("all goes on " * 20)
        story.say("something happened " * 20)
    story.show(table([Verdict("cache"), Verdict("index")], frozenset({"index"})))
    for _ in range(100):
        story.end("a fault")
    lines = out.getvalue().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert any("order" in line for line in lines)
    assert any("a fault" in line for line in lines)


def test_progress_leaves_room_for_what_happens() -> None:
    out = io.StringIO()
    story = Story(out)
    for _ in range(100):
        story.progress("all goes on")
    story.say("cache-1 killed")
    assert "cache-1 killed" in out.getvalue()


@pytest.mark.parametrize(
    ("shards", "text"),
    [
        (["db1.2of8", "db1.0of8"], "db1.(0 2)of8"),
        ([f"db1.{n}of8" for n in range(8)], "all 8 shards"),
        ([], "no shard"),
    ],
)
def test_shards_are_listed_shortly(shards: list[str], text: str) -> None:
    assert short_shards(shards) == text


TERMS = (
    "application",
    "caravan",
    "change buffer",
    "column family",
    "coordination",
    "datamarker",
    "duplicate",
    "flow",
    "latency",
    "lead caravan",
    "lost",
    "order violation",
    "p50, p99",
    "pinning",
    "publisher",
    "recovery",
    "shard",
    "subscriber",
    "update",
)


def test_every_term_of_the_demo_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    words = {match.split(" (")[0].strip() for match in re.findall(r"^- \*\*([^*]+)\*\*:", glossary, re.MULTILINE)}
    assert set(TERMS) <= words, set(TERMS) - words
