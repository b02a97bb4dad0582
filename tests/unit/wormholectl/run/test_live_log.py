"""What several processes print becomes one log: each line once, with its name, and nobody is held up by a slow
reader."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from wormholectl.run import live_log as module
from wormholectl.run.live_log import LiveLog

pytestmark = pytest.mark.allow_blocking("writes the files that are shown")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.01)
    monkeypatch.delenv("NO_COLOR", raising=False)


async def shown(live: LiveLog, output: io.StringIO, *texts: str) -> None:
    await eventually(lambda: all(text in output.getvalue() for text in texts), f"{texts} shown")


async def test_new_lines_of_every_file_and_of_this_process_are_shown_with_their_names(tmp_path: Path) -> None:
    output = io.StringIO()
    old, folder = tmp_path / "old.log", tmp_path
    old.write_text("before\n")
    live = LiveLog(folder, "monitor", output)
    task = asyncio.create_task(live.run())
    await asyncio.sleep(0.05)
    with old.open("a") as file:
        file.write("after\nhalf")
    (folder / "shop.main.db1.log").write_text("one\n")
    (folder / "shop.main.db1.log.1").write_text("an older one\n")
    live.emit(logging.LogRecord("x", logging.INFO, "x", 1, "mine\nof two lines", None, None))
    await shown(live, output, "after", "one", "mine", "of two lines")
    assert "before" not in output.getvalue(), "what was there is not news"
    assert "half" not in output.getvalue()
    with old.open("a") as file:
        file.write(" and whole\n")
    await shown(live, output, "half and whole")
    old.write_text("emptied\n")  # taken aside, and gone on with
    await shown(live, output, "emptied")
    live.say("the last")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lines = output.getvalue().splitlines()
    assert [line.partition("| ")[2] for line in lines].count("after") == 1
    assert {line.partition("|")[0].strip() for line in lines} == {"old", "shop.main.db1", "monitor"}
    assert lines[-1].endswith("| the last"), "what was said before the end is shown"
    assert "older" not in output.getvalue()
    assert "\033" not in output.getvalue()


async def test_on_a_terminal_names_have_colours_unless_unwanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unwanted in (False, True):
        if unwanted:
            monkeypatch.setenv("NO_COLOR", "1")
        output = Terminal()
        live = LiveLog(tmp_path / "none", "monitor", output)
        live.say("hello")
        task = asyncio.create_task(live.run())
        await shown(live, output, "hello")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert output.getvalue().startswith("\033[36mmonitor | \033[0mhello") is not unwanted


async def test_who_does_not_read_misses_lines_and_is_reported(tmp_path: Path) -> None:
    output = io.StringIO()
    live = LiveLog(tmp_path, "monitor", output)
    for number in range(5000):
        live.say(str(number))
    task = asyncio.create_task(live.run())
    await shown(live, output, "(4000 lines were left out")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(output.getvalue().splitlines()) == 1001


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    output = io.StringIO()
    live = LiveLog(tmp_path, "monitor", output)
    task = asyncio.create_task(live.run())
    await asyncio.sleep(0.03)
    (tmp_path / "a.log").write_text("x" * 300_000 + "\nend\n")
    await shown(live, output, "end")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert max(map(len, output.getvalue().splitlines())) < 70_000
