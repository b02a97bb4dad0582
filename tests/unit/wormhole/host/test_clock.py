"""Time, and waiting for others."""

from __future__ import annotations

import ast
import asyncio
import re

import pytest

from scripts.prepare import ROOT
from wormhole.host.waiting import in_turns, wait_at_most

# --- Time is passed in: only the module that builds the clock of the system asks for it


TIMELESS = {
    "caravan": (),
    "monitor": (),
    "publisher": ("publisher/sources",),
    "spark_replay/replay": (),
    "wormhole/push": (),
    "wormholectl": (),
}
"""Folders in which no module imports `time`, each with the folders below it that do not hold to that yet."""


def _imports_time(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time"
    return isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names)


@pytest.mark.parametrize("folder", TIMELESS)
def test_no_module_imports_time(folder: str) -> None:
    modules = (ROOT / folder).rglob("*.py")
    held = [path for path in modules if not any(ROOT / other in path.parents for other in TIMELESS[folder])]
    sources = {path: text for path in held if re.search(r"import.*\btime\b|from time ", text := path.read_text())}
    found = [str(path) for path, text in sources.items() if any(map(_imports_time, ast.walk(ast.parse(text))))]
    assert found == [], "use the clock that is passed in (wormhole.host.clock)"


# --- Waiting for an event, and long work in turns


async def test_an_event_ends_the_wait_and_so_does_time() -> None:
    event = asyncio.Event()
    await wait_at_most(event, 0.01)
    assert not event.is_set()
    event.set()
    async with asyncio.timeout(5):
        await wait_at_most(event, 3600)


async def test_others_get_a_turn_after_every_hundred_items() -> None:
    turns: list[int] = []
    seen = 0

    async def other() -> None:
        while True:
            turns.append(seen)
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    async for item in in_turns(range(250)):
        assert item == seen
        seen += 1
    beside.cancel()
    assert seen == 250
    assert turns == [100, 200]


async def test_items_that_go_meanwhile_are_seen_all_the_same() -> None:
    items = dict.fromkeys(range(150))
    seen = 0
    async for _ in in_turns(items):
        seen += 1
        items.clear()
    assert seen == 150
