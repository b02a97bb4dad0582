"""An empty archive on a disk, and one in each kind of storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.open_storage import open_storage
from spark_replay.archive.remote_storage import HdfsStorage
from spark_replay.archive.storage import LocalStorage, Storage
from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.name_node import NameNode


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return open_store(str(tmp_path / "archive"), "orders", copy="main", create=True)


@pytest.fixture(params=["disk", "s3", "hdfs"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    folder = tmp_path / "archive"
    if request.param == "hdfs":
        return HdfsStorage(f"hdfs://name:9000{folder}", NameNode().files())
    if request.param == "s3":
        return open_storage(f"s3://archives/{tmp_path.name}?{request.getfixturevalue('s3_service')}")
    folder.mkdir()
    return LocalStorage(str(folder))


@pytest.fixture
def any_store(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> ArchiveStore:
    monkeypatch.setattr("spark_replay.archive.store.open_storage", lambda _: storage)
    return open_store(storage.root, "orders", copy="main", create=True)
