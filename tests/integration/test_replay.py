"""A mass replay with everything real: RocksDB, publisher, archiver, subscribers, Spark. Half way the subscriber and the driver are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.replay_scene import Scene
from wormhole.cli.replaying import Asking, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 4000


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path)
    try:
        yield found
    finally:
        found.close()


def asking(**given: object) -> Asking:
    usual: dict[str, object] = {
        "application": "cache",
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
        "dry_run": False,
        "as_json": True,
    }
    return Asking(**{**usual, **given})  # type: ignore[arg-type]


def behind(scene: Scene) -> int:
    """The application is stopped, more is written than the log is kept for, and all of it archived; the last sequence number."""
    scene.publisher.start()
    scene.archiver.start()
    first = scene.subscribers["s1"]
    first.start()
    scene.writer.many(0, 200)
    scene.wait("the application is live", lambda: len(scene.handled()) >= 200)
    assert first.stop() == 0
    for round_ in range(2):
        scene.writer.write([("put", "users", b"u%d" % round_, b"v%d" % round_)])
        scene.writer.many(100 + round_ * WRITTEN // 4, WRITTEN // 2, 110 + 10 * round_)
        scene.writer.flush()
    scene.until_archived()
    scene.subscribers["s2"].start()
    scene.wait("the log is gone", lambda: any(flow.loss_pending for flow in scene.flows().values()))
    return scene.sequence()


def goes_on_live(scene: Scene) -> None:
    """The flows are live, everything that was ever written arrived, and the state is the store's."""
    last = scene.sequence()
    scene.writer.write([("put", "users", b"at the end", b"x")])
    scene.wait(
        "the live log goes on",
        lambda: not scene.missing("db1.default", {last}) and b"at the end".hex() in str(scene.state()),
    )
    elsewhere = scene.missing("db1.default", set(range(1, last + 2)))
    assert not scene.missing("db1.users", elsewhere), "what is not in one shard is in the other"
    scene.check_order()
    assert scene.state() == scene.stored()


def test_the_subscriber_and_then_the_driver_die_half_way(
    scene: Scene, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(scene)
    before = len(scene.handled())
    driver = scene.replay("--app", "cache", "--mode", "log", "--rate", "100kB/s", "--master", "local[2]")
    driver.start()
    try:
        scene.wait("the replay pushes", lambda: len(scene.handled()) > before + WRITTEN // 8)
        scene.subscribers["s2"].kill()
        reached = len(scene.handled())
        scene.subscribers["s1"].start()
        scene.wait("another subscriber has it", lambda: len(scene.handled()) > reached + WRITTEN // 8)
    finally:
        driver.kill()
    flows = scene.flows()
    assert flows["cache/db1.default"].state == "replaying"
    number = flows["cache/db1.default"].replay.replay
    monkeypatch.setattr(spark, "stop", lambda: None)  # it is shared with other tests
    assert replay(scene.where, asking(application="", resume=number)) == 0
    goes_on_live(scene)
    notices = (scene.folder / "log.notices").read_text()
    assert "replay_begin" in notices
    assert "replay_end" in notices


def test_the_last_change_of_each_key_comes_to_the_same(
    scene: Scene, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last = behind(scene)
    monkeypatch.setattr(spark, "stop", lambda: None)
    before = len(scene.handled())
    assert replay(scene.where, asking(mode="latest", dry_run=True)) == 0
    assert '"mode": "latest"' in capsys.readouterr().out
    assert replay(scene.where, asking(mode="latest")) == 0
    assert len(scene.handled()) - before < last - before, "fewer than every change"
    scene.writer.write([("put", "users", b"at the end", b"x")])
    scene.wait("the live log goes on", lambda: b"at the end".hex() in str(scene.state()))
    assert scene.state() == scene.stored()
