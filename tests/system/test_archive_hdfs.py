"""An archive in HDFS, on Hadoop's own name node and data node, which go away and come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass

from tests.support.archive_journey import (
    looked_after,
    replayed,
    several_commit_at_once,
    tables_are_the_stores,
    written_through,
)
from tests.support.hadoop import hdfs
from tests.support.replay_scene import Scene

pytestmark = pytest.mark.soak


class Hdfs:
    """``to``: the URL of an archive in a folder of the user ``archiver``."""

    def __init__(self, url: str, cluster: Any) -> None:
        self._cluster = cluster
        self.to = f"{url}/lake/shop"
        self._path, self._permission = (
            JavaClass(f"org.apache.hadoop.fs.{name}", cluster._gateway_client)
            for name in ("Path", "permission.FsPermission")
        )
        self._cluster.getFileSystem().mkdirs(self._path("/lake"))
        self._belongs_to("archiver")

    def _belongs_to(self, user: str) -> None:
        """As the user who started the name node says, who may do everything."""
        files, lake = self._cluster.getFileSystem(), self._path("/lake")
        files.setOwner(lake, user, user)
        files.setPermission(lake, self._permission("700"))

    @contextlib.contextmanager
    def without_data_node(self) -> Iterator[None]:
        """Nothing can be written or read; names are there."""
        properties = self._cluster.stopDataNode(0)
        try:
            yield
        finally:
            self._cluster.restartDataNode(properties, True)
            self._cluster.waitActive()

    @contextlib.contextmanager
    def without_name_node(self) -> Iterator[None]:
        """Nobody answers."""
        self._cluster.shutdownNameNode(0)
        try:
            yield
        finally:
            self._cluster.restartNameNode(0)
            self._cluster.waitActive()

    @contextlib.contextmanager
    def forbidden(self) -> Iterator[None]:
        """The folder is another user's."""
        self._belongs_to("somebody")
        try:
            yield
        finally:
            self._belongs_to("archiver")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hdfs]:
    with hdfs(tmp_path / "hadoop") as (url, cluster):
        found = Hdfs(url, cluster)
        monkeypatch.setenv("HADOOP_USER_NAME", "archiver")
        yield found


@pytest.fixture
def scene(tmp_path: Path, place: Hdfs) -> Iterator[Scene]:
    found = Scene(tmp_path, keys=100, credit=16 << 10, holds={"c1": (150, 200)}, archive=place.to)
    try:
        yield found
    finally:
        found.close()


def test_its_nodes_go_away_and_come_back(scene: Scene, place: Hdfs, say: Callable[[str], None]) -> None:
    say("\narchive in HDFS")
    several_commit_at_once(place.to.replace("/shop", "/orders"))
    troubles = {
        "without a data node": (place.without_data_node, "see whether the disk or the service is well"),
        "without a name node": (place.without_name_node, "see whether the disk or the service is well"),
        "forbidden": (place.forbidden, "the right to read, write and delete"),
    }
    written_through(scene, troubles, say)
    looked_after(scene)
    replayed(scene, place.forbidden)
    tables_are_the_stores(scene)
