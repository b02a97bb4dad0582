from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.history.files import head_of, live_file, live_files, newest_options, wal_directory
from tests.support.present import present
from wormhole.model.errors import UsageError


def test_live_files_and_archived_ones(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    for name in ("000004.log", "LOG", "000005.sst", "x.log", "archive/000002.log"):
        (tmp_path / name).write_bytes(b"abc")
    found = live_files(tmp_path)
    assert sorted(found) == [2, 4]
    assert found[4].size == 3
    assert head_of(found[2].path) == b"abc"
    assert live_file(tmp_path / "000009.log") is None


def test_the_newest_options_that_can_be_read(tmp_path: Path) -> None:
    assert newest_options(tmp_path) is None
    (tmp_path / "OPTIONS-000009").write_text("[Version]\nrocksdb_version=9\n")
    (tmp_path / "OPTIONS-000010").write_text("[Vers")  # is being written
    assert present(newest_options(tmp_path)).version == "9"


def test_the_directory_of_the_wal(tmp_path: Path) -> None:
    assert wal_directory(tmp_path, None) == tmp_path
    assert wal_directory(tmp_path, DatabaseOptions("9", {"wal_dir": "/wal"}, {})) == Path("/wal")
    with pytest.raises(UsageError, match="relative"):
        wal_directory(tmp_path, DatabaseOptions("9", {"wal_dir": "wal"}, {}))
