"""What the process of a sink finds about its store before a flow is assigned."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from sinks import examination
from sinks.examination import StoreWatch
from sinks.port import Sink
from sinks.settings import ConfiguredSink, configured_sink
from wormhole.config import load
from wormhole.model.findings import Report

# The kinds' `open` blocks, in a thread that the tests' loop runs in place.
pytestmark = pytest.mark.allow_blocking


@pytest.fixture
def sink(tmp_path: Path) -> ConfiguredSink:
    file = tmp_path / "shop.toml"
    file.write_text(f"version = 1\n[sinks.lines]\nurl = 'jsonlines://{tmp_path}/lines'\n")
    return configured_sink(load(file), file, "lines")


async def test_a_store_that_cannot_be_used_is_logged_until_it_can(
    sink: ConfiguredSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sinks")
    looks = 0

    async def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            (tmp_path / "lines").mkdir()

    monkeypatch.setattr(asyncio, "sleep", wait)
    watch = StoreWatch(sink, lambda: 0)
    await watch.begin()
    assert [finding.known_code for finding in watch.problems] == ["target-unavailable"]
    await watch.run()
    assert (looks, watch.problems) == (2, [])
    first, second = (record for record in caplog.records if record.name == "sinks")
    assert (first.levelno, second.levelno) == (logging.ERROR, logging.INFO)
    assert "target-unavailable" in first.getMessage()


async def test_a_store_that_takes_records_can_be_used(sink: ConfiguredSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_AGAIN_S", 0)
    watch = StoreWatch(sink, lambda: 1)
    await watch.begin()
    assert watch.problems
    await watch.run()
    assert not watch.problems


async def test_a_store_that_does_not_answer_is_not_waited_for(
    sink: ConfiguredSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").mkdir()
    opened = sink.open()

    async def never(self: Sink) -> Report:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(type(opened), "examine", never)
    monkeypatch.setattr(examination, "_FIRST_S", 0)
    watch = StoreWatch(sink, lambda: 0)
    await watch.begin()
    assert [finding.known_code for finding in watch.problems] == ["target-unavailable"]
    await opened.close()
