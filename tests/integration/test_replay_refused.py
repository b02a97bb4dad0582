"""What ``wormholectl replay`` refuses, by its command line, with a real publisher and a real archive: one error, its
next step, and nothing held.

What is wrong with a manifest or a checkpoint is reported by its reader: see ``tests/unit/spark_replay/archive``; one of
these stands for all here. What is wrong with a data file shows when a task reads it: see
``tests/unit/spark_replay/replay/test_task.py``. A driver that never comes back: ``test_replay_publisher.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.checkpoints import INLINE
from spark_replay.spark import session
from tests.integration.test_operating_flows import World
from tests.support.archives import marker_at, put, tx, write_archive
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.eventually import until
from wormhole.model.position import LogPosition
from wormhole.wire.v1 import admin_pb2


class Scene:
    """A database of one row, its publisher, and an archive that begins before the flow's datamarker and ends behind
    it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.archive = folder / "archive"
        self.config = self.world.publisher.config
        with self.config.open("a") as file:
            file.write(f'[datasets.shop.archive]\nto = "{self.archive}"\n')
            file.write('[applications.archive]\ndataset = "shop"\nstart = "earliest"\n')
        self.world.writer.put(b"k", b"v")
        self.world.publisher.start()
        found = until(lambda: self.world.publisher.flow("app"), self.world.publisher.tail)
        assert found is not None
        self.flow: admin_pb2.FlowStatus = found
        files = [[tx(put(b"k", b"%d" % number))] for number in range(INLINE + 1)]
        store = write_archive(self.archive, {"db1": files}, dataset="shop")
        beyond = replace(marker_at(len(files)), order=LogPosition(1, 1000, 0))
        store.change("db1", lambda one: one.extended(beyond, 1))  # type: ignore[union-attr]

    @property
    def checkpoint(self) -> Path:
        """The newest manifest lists all files but one in it."""
        (found,) = (self.archive / "db1" / "checkpoints").iterdir()
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("refused"))
    try:
        yield scene
    finally:
        scene.world.close()


@pytest.fixture
def scene(made: Scene) -> Iterator[Scene]:
    checkpoint = made.checkpoint
    kept = checkpoint.read_bytes()
    yield made
    checkpoint.write_bytes(kept)


def lost_checkpoint(scene: Scene) -> None:
    scene.checkpoint.unlink()


def nothing(scene: Scene) -> None:
    pass


@pytest.mark.parametrize(
    ("changes", "asked", "status", "says", "hint"),
    [
        (nothing, ("--app", "ap"), 2, "no application 'ap' is configured", "did you mean app"),
        (nothing, ("--app", "app", "--shards", "db2"), 2, "has no shard 'db2'", "db1"),
        (nothing, ("--app", "app"), 1, "no subscriber of app is connected", "start a subscriber of app"),
        (nothing, ("--app", "app", "--until", "9/9/0"), 1, "does not reach up to --until 9/9/0: the archive of db1 holds", "--until"),  # noqa: E501
        (lost_checkpoint, ("--app", "app"), 1, ".json is gone; manifest 18 of db1 names it for 16 files between 1/1/0 and 1/1/1600", "restore the file from a backup"),  # noqa: E501
        (nothing, ("--resume", "r-none"), 2, "no flow is with a replay 'r-none'", "wormholectl flows"),
    ],
)  # fmt: skip
def test_one_error_with_its_next_step_and_nothing_is_held(
    scene: Scene, changes: Callable[[Scene], None], asked: tuple[str, ...], status: int, says: str, hint: str
) -> None:
    changes(scene)
    got, out, error = run("replay", *asked, "-c", str(scene.config))
    assert (got, out) == (status, "")
    first, second = error.strip().splitlines()
    assert first.startswith("error [")
    assert says in first
    assert second.startswith("  next: ")
    assert hint in second
    flow = scene.world.publisher.flow("app")
    assert flow is not None
    assert (flow.state, flow.HasField("replay"), flow.epoch) == (scene.flow.state, False, scene.flow.epoch)


def test_without_java_nothing_is_asked_of_anybody(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    got, _, error = run("replay", "--app", "app", "-c", str(scene.config))
    assert got == 2
    assert "Spark needs Java 17 or newer: JAVA_HOME is /nowhere" in error
    assert "  next: install a Java runtime" in error


def test_a_dry_run_needs_neither_a_subscriber_nor_to_start_spark(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", started)
    asked = (
        "replay",
        "--app",
        "app",
        "--dry-run",
        "--json",
        "--from",
        "1/0/0",
        "-c",
        str(scene.config),
    )
    got, out, error = run(*asked)
    assert (got, error) == (0, "")
    told = check("replay-plan", out)
    (flow,) = told["flows"]
    assert (flow["from"], flow["updates"], flow["keys"]) == ("1/1/0", 17, 1)
    assert "no subscriber of app is connected" in told["problem"]
