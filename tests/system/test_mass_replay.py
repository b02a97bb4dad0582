"""An application is stopped, more is written than the log is kept for, and a mass replay brings it to exactly what the
store holds.

Everything is real: RocksDB, publisher, archiver, subscribers, ``wormholectl replay``, Spark.
``WORMHOLE_REPLAY_UPDATES`` says how much is written; ``make soak`` writes two million.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_replay.archive.verify import verify
from spark_replay.commands import replay as replay_command
from tests.support.command_line import run
from tests.support.replay_scene import Scene
from tests.system.harness.processes import Process, peak_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]

UPDATES = int(os.environ.get("WORMHOLE_REPLAY_UPDATES", "2000000" if "WORMHOLE_ROUNDS" in os.environ else "6000"))
FULL = UPDATES >= 1_000_000
ROUNDS, KILLED = (10, 10) if FULL else (2, 1)
"""In how many rounds that is written, and in how many of them the archiver is killed; ``test_archive_kill_nine.py``
does more of it."""
HALF, LITTLE = UPDATES // 2, UPDATES // 12
"""Updates of the replay after which the subscriber is killed, and those that the next one gets before the driver is
killed.
"""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(
        tmp_path,
        keys=max(100, UPDATES // 12),
        credit=(4 << 20) if FULL else (32 << 10),
        holds={"c1": (HALF, HALF + LITTLE), "c2": (LITTLE, 2 * LITTLE)},
    )
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def keeps_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is shared with other tests: replays do not stop it."""
    monkeypatch.setattr(spark, "stop", lambda: None)


class Figures:
    """Prints how long each step took, and what the processes need."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()

    def __call__(self, what: str, updates: int = 0) -> None:
        now = time.monotonic()
        took, self._began = now - self._began, now
        rate = f", {updates / took:,.0f} updates/s" if updates else ""
        self._say(f"  {what}: {took:.1f} s{rate}")

    def memory(self, *processes: Process) -> None:
        for process in processes:
            sizes = [f"{peak_memory(pid) >> 20} MiB" for pid in _family(process.pid)]
            self._say(f"  {process.name}: at most {' + '.join(sizes)}")


def _family(pid: int) -> list[int]:
    """The process and those that it started, without those that ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may end meanwhile
        if "VmHWM" in Path(f"/proc/{pid}/status").read_text():
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):  # and so may a thread
                    for child in (task / "children").read_text().split():
                        found += _family(int(child))
    return found


@pytest.mark.usefixtures("keeps_spark")
def test_two_applications_come_back_by_mass_replay(scene: Scene, say: Callable[[str], None], capsys: Capture) -> None:
    say(f"\nmass replay, {UPDATES} updates")
    figures = Figures(say)
    behind(scene)
    figures("written, archived and gone from the log", UPDATES)

    cache = scene.received["cache"]
    with scene.live():
        replayed_with_deaths(scene, figures, capsys)
        came_back(scene, "cache")
    last = up_to_date(scene, "cache")
    assert cache.missing(1, last) == []
    figures("compared")

    search = scene.received["search"]
    before = search.count
    assert replays(scene, capsys, application="search", mode="latest", dry_run=True) == 0
    assert '"mode": "latest"' in capsys.readouterr().out
    with scene.live():
        assert replays(scene, capsys, application="search", mode="latest") == 0
        figures("latest", last)
        came_back(scene, "search")
    last = up_to_date(scene, "search")
    assert search.count - before < last, "fewer than every change"
    for shard, first in search.first_live.items():
        assert search.missing(first, last, shard) == []
    figures("compared")
    figures.memory(scene.publisher, scene.archiver)
    assert scene.archiver.stop() == 0
    store = scene.store()
    assert store is not None
    assert verify(store, deep=True).problems == []


@pytest.mark.usefixtures("keeps_spark")
def test_what_neither_log_nor_archive_holds_is_reported_exactly(scene: Scene, capsys: Capture) -> None:
    scene.let_go()
    scene.publisher.start()
    scene.archiver.start()
    first, second = (scene.subscribers[name] for name in ("c1", "c2"))
    first.start()
    scene.write(500)
    scene.wait("the application is live", lambda: scene.acknowledged("cache") >= 500)
    assert first.stop() == 0
    scene.write(2000)
    kept = scene.cut_log()
    second.start()
    scene.wait("the application is told", lambda: losses(scene, "cache") == 3)
    assert scene.archiver.stop() == 0
    assert set(scene.archived().values()) == {kept}
    scene.write(5000)
    scene.writer.flush()
    last = scene.write(1)
    assert replays(scene, capsys, mode="log") == 1
    told = capsys.readouterr().out
    assert f"{kept + 1} to {last - 1} exists nowhere any more" in told, told
    scene.wait("the application is told", lambda: losses(scene, "cache", kept + 1, last - 1) == 3)
    for flow in scene.flows("cache"):
        assert run("flows", "accept-loss", flow.flow, "--yes", "-c", str(scene.config))[0] == 0
    cache = scene.received["cache"]
    scene.wait("the live flow goes on", lambda: cache.look() and cache.has(last))
    last = scene.write(500)
    scene.wait("all of it came", lambda: cache.look() and not cache.missing(last - 500, last))
    assert cache.missing(1, last) == list(range(kept + 1, last - 500))
    assert cache.problems == []


def behind(scene: Scene) -> None:
    """The applications have a little and are stopped; what is written then is archived and in the log no more.

    They are started again, and told."""
    scene.publisher.start()
    scene.archiver.start()
    for name in ("c1", "s1"):
        scene.subscribers[name].start()
    scene.write(300)
    scene.wait("the applications are live", lambda: min(map(scene.acknowledged, scene.received)) >= 300)
    for name in ("c1", "s1"):
        assert scene.subscribers[name].stop() == 0
    for number in range(ROUNDS):
        scene.write(UPDATES // ROUNDS)
        if number < KILLED:
            reached = scene.archived()
            scene.wait("the archive grows", lambda reached=reached: scene.archived() != reached)  # type: ignore[misc]
            scene.archiver.kill()
            store = scene.store()
            assert store is not None
            assert verify(store).problems == []
            scene.archiver.start()
        scene.until_archived(scene.written)
        scene.writer.flush()
    for name in ("c1", "s1"):
        scene.subscribers[name].start()
        application = "cache" if name == "c1" else "search"
        scene.wait("the log is gone", lambda application=application: losses(scene, application) == 3)  # type: ignore[misc]


def losses(scene: Scene, application: str, *range_: int) -> int:
    """How many flows the application was told a loss of, of just this range if there is one."""
    wanted = list(map(str, range_))
    return len(
        {shard for shard, _, kind, *what in scene.notices(application) if kind == "loss" and wanted in ([], what)}
    )


def replayed_with_deaths(scene: Scene, figures: Figures, capsys: Capture) -> None:
    """Every change; the subscriber and then the driver die half way, and the log goes on past the end of the range."""
    cache = scene.received["cache"]
    driver = scene.replay("--app", "cache", "--mode", "log")
    scene.wait("half of it is pushed", lambda: cache.look() and cache.replayed >= HALF)
    scene.subscribers["c1"].kill()
    killed = cache.look() and cache.replayed
    scene.subscribers["c2"].start()
    scene.wait("another subscriber has it", lambda: cache.look() and cache.replayed >= killed + LITTLE)
    figures.memory(driver, scene.publisher, scene.archiver, scene.subscribers["c2"])
    started = _family(driver.pid)
    driver.kill()
    scene.wait("what the driver started is gone", lambda: not any(map(_family, started)))
    scene.let_go()
    figures("log, half of it", cache.look())
    before, replayed = cache.count, cache.replayed
    scene.cut_log()
    figures("the log is cut again")
    cache.look()
    assert cache.replayed - replayed < UPDATES // 4, (
        "more than what was under way: what the driver left running pushed on"
    )
    flows = scene.wait("the publisher answers", lambda: scene.flows("cache"))
    (number,) = {flow.replay.replay for flow in flows if flow.state == "replaying"}
    scene.wait("the subscriber is there", lambda: "c2" in scene.connected("cache"))
    assert replays(scene, capsys, application="", resume=number) == 0
    assert "no longer reaches back" in capsys.readouterr().err
    figures("log, resumed", cache.look() - before)


def replays(scene: Scene, capsys: Capture, **given: object) -> int:
    """``wormholectl replay`` in this process, to its end; its exit code."""
    usual: dict[str, object] = {
        "application": "cache",
        "archives": (),
        "shards": (),
        "start": "",
        "since": "",
        "until": "",
        "where": "",
        "snapshot": "",
        "mode": "log",
        "rate": 0.0,
        "master": "",
        "patience_s": 60.0,
        "lease_s": 30.0,
        "resume": "",
    }
    capsys.readouterr()
    dry_run = bool(given.pop("dry_run", False))
    return replay_command._replay(scene.where, {**usual, **given}, dry_run=dry_run, as_json=True)


def came_back(scene: Scene, application: str) -> None:
    """It was told of the replay, and gets what is written now from the log."""
    received = scene.received[application]
    now = scene.written
    scene.wait("the live flow goes on", lambda: received.look() and received.has(now + 1))
    scene.wait("it is told of the replay's end", lambda: set(last_of_replays(scene, application)) == {"replay_end"})
    scene.wait("its flows are live", lambda: {flow.state for flow in scene.flows(application)} == {"live"})


def last_of_replays(scene: Scene, application: str) -> list[str]:
    """The last notice of a replay that each shard received."""
    told = dict.fromkeys(scene.archived(), "")
    for shard, _, kind, *_ in scene.notices(application):
        if kind.startswith("replay_"):
            assert kind == "replay_begin" or told[shard], f"{shard}: an end without a beginning"
            told[shard] = kind
    return list(told.values())


def up_to_date(scene: Scene, application: str) -> int:
    """Nothing is written: the application has everything, and holds what the store does; the number of the last
    change."""
    received = scene.received[application]
    last = scene.written
    scene.wait("the last of each shard came", lambda: received.look() and not received.missing(last - 100, last))
    stored = scene.stored()
    scene.wait("the state is the store's", lambda: received.look() and received.state == stored)
    assert received.problems == []
    return last
