"""The folder of a snapshot: nothing is written over, nothing counts before the JSON is there."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.selected import PLAIN
from spark_replay.tables.folder import Folder
from spark_replay.tables.updates import file_rows, write_rows
from wormhole.model.errors import ReplayError, UsageError


def test_a_folder_that_has_anything_in_it_is_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "new"), "x.json")
    folder.begin()
    (tmp_path / "new" / "kept").write_text("")
    with pytest.raises(UsageError, match="is not empty: kept"):
        folder.begin()


def test_files_that_tasks_left_are_no_part_of_it(tmp_path: Path) -> None:
    """Spark tried the task again, or took it for dead."""
    folder = Folder(str(tmp_path / "above" / "new"), "x.json")
    folder.begin()
    shape = pa.schema([pa.field("a", pa.int64())])
    given = pa.RecordBatch.from_pydict({"a": [1, 2]})
    first, second = (write_rows(folder.storage, "t", shape, [given]) for _ in range(2))
    assert folder.settle("t", shape, [second]) == [second]
    assert [path.name for path in (tmp_path / "above/new/t").iterdir()] == [Path(second.file.path).name]
    assert not Path(folder.storage.path(first.file.path)).exists()
    (empty,) = folder.settle("none", shape, [])
    assert pq.read_table(tmp_path / "above/new" / empty.file.path).num_rows == 0


def test_a_folder_in_s3_is_written_and_read_by_the_client_of_archives(s3_service: str, tmp_path: Path) -> None:
    folder = pickle.loads(pickle.dumps(Folder(f"s3://archives/{tmp_path.name}?{s3_service}", "x.json")))
    folder.begin()
    row = {"key": b"k", "table": "t", "schema_id": 1, "partial": False}
    given = pa.RecordBatch.from_pylist([row], schema=PLAIN)
    _, kept = (write_rows(folder.storage, "updates", PLAIN, [given]) for _ in range(2))
    folder.settle("updates", PLAIN, [kept])
    assert [f"updates/{one.name}" for one in folder.storage.files("updates")] == [kept.file.path]
    (rows,) = file_rows(folder.storage, kept.file)
    assert rows == given
    folder.finish({"dataset": "d"})
    assert folder.about()["dataset"] == "d"
    with pytest.raises(UsageError, match="is not empty: updates"):
        folder.begin()


def test_what_was_finished_can_be_read(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "x.json")
    with pytest.raises(ReplayError, match=r"there is no x\.json"):
        folder.about()
    folder.finish({"dataset": "d"})
    assert folder.about()["dataset"] == "d"
    for broken, told in ((b"{", "cannot be read"), (b"[]", "cannot be read"), (json.dumps({"format": 2}), "newer")):
        (tmp_path / "x.json").write_bytes(broken if isinstance(broken, bytes) else broken.encode())
        with pytest.raises(ReplayError, match=told):
            folder.about()
