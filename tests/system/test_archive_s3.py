"""An archive in S3, on a server that is a process of its own, and that fails in every way that servers do.

The contract tests of the archive ask moto's server, in the test's process; those here ask the Versity gateway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_replay.archive.store import open_store
from tests.support.archive_journey import (
    looked_after,
    replayed,
    several_commit_at_once,
    tables_are_the_stores,
    written_through,
)
from tests.support.replay_scene import Scene
from tests.support.s3_server import S3Server
from wormhole.model.errors import ArchiveError, ArchiveUnavailable

pytestmark = pytest.mark.soak


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    found = S3Server(tmp_path / "s3")
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    try:
        yield found
    finally:
        found.kill()


@pytest.fixture
def scene(tmp_path: Path, server: S3Server) -> Iterator[Scene]:
    found = Scene(tmp_path, keys=100, credit=16 << 10, holds={"c1": (150, 200)}, archive=server.to)
    try:
        yield found
    finally:
        found.close()


def test_several_commit_at_once(server: S3Server) -> None:
    several_commit_at_once(server.to)


def test_an_upload_of_many_parts_that_the_server_does_not_survive(server: S3Server) -> None:
    store = open_store(server.to, "shop", copy="main", create=True)
    content = os.urandom(24 << 20)
    with pytest.raises((ArchiveUnavailable, ArchiveError)), store.create_data("a", "large.parquet") as new:
        new.sink.write(content[: 12 << 20])
        with server.killed():
            new.sink.write(content[12 << 20 :])
            new.close()
    assert store.data_files("a") == []
    with store.create_data("a", "large.parquet") as new:
        new.sink.write(content)
    with store.open_data("a", "large.parquet") as source:
        assert source.read() == content


def test_the_server_fails_in_every_way(scene: Scene, server: S3Server, say: Callable[[str], None]) -> None:
    say("\narchive in S3")
    troubles = {
        "killed": (server.killed, "see whether"),
        "frozen": (server.frozen, "see whether"),
        "throttled": (server.throttled, "Please reduce your request rate"),
        "forbidden": (server.forbidden, "the right to read, write and delete"),
    }
    written_through(scene, troubles, say)
    looked_after(scene)
    replayed(scene, server.forbidden)
    tables_are_the_stores(scene)
