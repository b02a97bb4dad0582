"""The folder of a snapshot: nothing is written over, nothing counts before the JSON is there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.tables.folder import Folder, table_folder
from wormhole.model.errors import ReplayError, UsageError


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("shop.orders", "tables/shop.orders"),
        ("a/b c", "tables/a%2Fb%20c"),
        ("_x", "tables/%5Fx"),
        (".x", "tables/%2Ex"),
    ],
)
def test_a_tables_folder_is_one_that_readers_see(table: str, folder: str) -> None:
    assert table_folder(table) == folder


def test_a_folder_that_has_anything_in_it_is_refused(tmp_path: Path) -> None:
    Folder(str(tmp_path / "new"), "x.json").begin()
    (tmp_path / "kept").write_text("")
    with pytest.raises(UsageError, match="is not empty: kept"):
        Folder(str(tmp_path), "x.json").begin()


def test_footers_say_how_many_rows_there_are(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "x.json")
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": [1, 2], "b": [False, False]}), tmp_path / "t/1.parquet")
    (tmp_path / "t/_SUCCESS").write_text("")
    assert folder.rows("t") == 2
    pq.write_table(pa.table({"a": [3, 4], "b": [False, True]}), tmp_path / "t/2.parquet", row_group_size=1)
    assert folder.rows("t") == 4
    assert folder.rows("none") == 0


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
