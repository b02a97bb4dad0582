"""Log lines, one by one and in batches."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from subscriber_sdk.testing.clock import FakeTimeLoop
from wormhole.host.log_batch import BatchedLog
from wormhole.host.logs import bind, configure, configure_if_unset
from wormhole.model.errors import ConfigError

# --- What a process of ours writes to standard error, as JSON and for people


_log = logging.getLogger("wormhole.test_logs")


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_one_object_a_line_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORMHOLE_LOG", raising=False)
    configure()
    _log.debug("not shown")
    _log.info("two\nlines of %s", "é", extra={"flow": "cache/a", "epoch": 3, "password": "hidden"})
    (line,) = _lines(capsys)
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "wormhole.test_logs",
        "message": "two\nlines of é",
        "flow": "cache/a",
        "epoch": 3,
    }


async def test_what_a_task_is_bound_to_is_in_its_lines_and_in_no_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(json=True)

    async def child() -> None:
        await asyncio.to_thread(_log.warning, "from a thread of a task of it")

    async def publisher(log: str) -> None:
        bind(dataset="shop", copy="main", log=log)
        await asyncio.create_task(child())

    await asyncio.gather(publisher("db1"), publisher("db2"))
    _log.warning("of nobody")
    *bound, free = _lines(capsys)
    assert sorted((line["dataset"], line["copy"], line["log"]) for line in bound) == [
        ("shop", "main", "db1"),
        ("shop", "main", "db2"),
    ]
    assert "dataset" not in free


def test_people_get_a_plain_line_and_the_traceback_below_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORMHOLE_LOG", "text")
    configure()
    try:
        raise ValueError("mysql://root:secret@db1/shop")
    except ValueError:
        _log.exception("it broke", extra={"flow": "cache/a"})
    first, *rest = capsys.readouterr().err.splitlines()
    assert "[error    ] it broke [wormhole.test_logs]" in first
    assert "flow" not in first
    assert rest[-1] == "    ValueError: mysql://root:***@db1/shop"


def test_a_peer_forges_no_line_of_a_text_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORMHOLE_LOG", "text")
    configure()
    _log.warning("subscriber %s is away", "a\n2026-01-01 00:00:00 [error    ] all is lost\x1b[2J")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("subscriber a")
    assert second.startswith("    2026-01-01")
    assert "\\x1b[2J" in second


def test_secrets_that_a_library_quotes_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=True)
    _log.error("cannot connect to %s", "mysql://root:pa:s/s@db1/shop")
    _log.error("refused: authorization: Bearer 0123abcd")
    try:
        raise ValueError("mysql://root:pass@db1/shop")
    except ValueError:
        _log.exception("it broke")
    written = json.dumps(_lines(capsys))
    assert "mysql://root:***@db1/shop" in written
    assert "0123abcd" not in written
    assert "pa:s" not in written
    assert ":pass@" not in written


def test_the_variable_decides_over_the_terminal_and_a_wrong_word_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("WORMHOLE_LOG", "json")
    configure()
    _log.info("hello")
    assert _lines(capsys)[0]["message"] == "hello"
    monkeypatch.setenv("WORMHOLE_LOG", "yaml")
    with pytest.raises(ConfigError, match="allowed are json and text"):
        configure()


@pytest.mark.parametrize(("terminal", "level"), [(False, "[warning  ]"), (True, "\x1b[33m[warning  ]\x1b[0m")])
def test_an_application_that_did_not_set_up_logging_gets_lines_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool, level: str
) -> None:
    monkeypatch.delenv("WORMHOLE_LOG", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    hook = sys.excepthook
    logging.getLogger().handlers.clear()  # pytest's
    configure_if_unset(_log)
    configure_if_unset(_log)  # as a second `run` in the process
    _log.debug("not shown")
    _log.warning("two %s", "words")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.partition(" ")[2].partition(" ")[2] == f"{level} two words [wormhole.test_logs]"
    assert sys.excepthook is hook  # that, and the rest of the process, is the application's


@pytest.mark.parametrize("name", ["", "wormhole.test_logs"])
def test_an_application_that_set_up_logging_keeps_it(capsys: pytest.CaptureFixture[str], name: str) -> None:
    logging.getLogger().handlers.clear()  # pytest's
    handler, chosen = logging.NullHandler(), logging.getLogger(name)
    chosen.addHandler(handler)
    try:
        configure_if_unset(_log)
        _log.warning("for the application's handler")
        assert logging.getLogger().handlers == ([] if name else [handler])
        assert capsys.readouterr().err == ""
    finally:
        chosen.removeHandler(handler)


# --- How many lines are said about how much


def _run(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        runner.run(main)


def test_what_happens_to_one_is_said_whole_and_to_a_thousand_in_one_line() -> None:
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        gathered.add("given to one", "cache/a", "in epoch 1")
        await asyncio.sleep(0.2)
        assert said == ["given to one: cache/a in epoch 1"]
        for number in range(1000):
            gathered.add("given to one", f"cache/{number}", "in epoch 1")
        gathered.add("given to two", "cache/b")
        await asyncio.sleep(3)
        assert said[1:] == [
            (
                "given to one (1000, the first 1.9 s ago): cache/0 in epoch 1, cache/1, cache/2, cache/3, cache/4, "
                "cache/5, cache/6, cache/7 and 992 more"
            ),
            "given to two (1.9 s ago): cache/b",
        ]

    _run(main())


def test_what_never_ends_is_said_ever_more_seldom_and_after_a_pause_at_once_again() -> None:
    said: list[tuple[float, str]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        gathered = BatchedLog(lambda line: said.append((loop.time(), line)))
        for number in range(600):  # one minute
            gathered.add("moved", f"f{number}")
            await asyncio.sleep(0.1)
        assert 3 <= len(said) <= 7
        counts = (re.search(r"\((\d+),", line) for _, line in said)
        assert sum(1 if count is None else int(count[1]) for count in counts) > 250
        await asyncio.sleep(200)
        before = len(said)
        began = loop.time()
        gathered.add("moved", "again")
        await asyncio.sleep(1)
        assert [line for _, line in said[before:]] == ["moved: again"]
        assert said[-1][0] - began < 0.2

    _run(main())


def test_nothing_is_forgotten_at_the_end_and_nothing_said_twice() -> None:
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        gathered.flush()
        gathered.add("moved", "a")
        gathered.flush()
        await asyncio.sleep(100)
        assert said == ["moved: a"]

    _run(main())


def test_kinds_that_wait_are_bounded() -> None:
    """A kind may contain a name that a peer chose."""
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        for number in range(1000):
            gathered.add(f"publisher {number} serves", "s")
        assert len(said) == 1000 // 64 * 64
        gathered.flush()
        assert len(said) == 1000

    _run(main())
