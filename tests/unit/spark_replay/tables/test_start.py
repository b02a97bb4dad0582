"""What a snapshot says of itself, without Spark; tests/integration/test_spark_tables.py writes and reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive.manifest import marker_to_text
from spark_replay.tables.about import ABOUT
from spark_replay.tables.folder import Folder
from spark_replay.tables.start import about_start
from tests.support.archives import marker_at
from wormhole.model.errors import ReplayError

GIVEN: dict[str, Any] = {
    "dataset": "orders",
    "copy": "main",
    "complete": True,
    "problems": [],
    "shards": {"a": {"marker": marker_to_text(marker_at(3))}},
    "schemas": [],
}


@pytest.mark.parametrize("older", [False, True])
def test_a_complete_one_says_where_the_archive_goes_on(tmp_path: Path, older: bool) -> None:
    Folder(str(tmp_path), ABOUT).finish(GIVEN)
    if older:
        (tmp_path / ABOUT).write_text(json.dumps({"format": 1, **GIVEN}, indent=1))
    about = about_start(str(tmp_path), "orders", "main")
    assert ({shard: one.marker for shard, one in about.shards.items()}, about.schemas) == ({"a": marker_at(3)}, ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dataset": "cache"}, "is of cache, not of orders"),
        ({"copy": "eu"}, "is of copy eu, not of main"),  # whose places do not compare
        ({"complete": False, "problems": ["the archive of a begins late"]}, "no start for a replay: the archive of a"),
        ({"shards": {"a": {}}}, "cannot be read: KeyError"),
        ({"shards": {"a": {"marker": "?"}}}, "cannot be read"),
        ({"shards": 5}, "cannot be read"),
        ({"schemas": [5]}, "cannot be read"),
    ],
)
def test_what_is_no_start(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    Folder(str(tmp_path), ABOUT).finish({**GIVEN, **change})
    with pytest.raises(ReplayError, match=told):
        about_start(str(tmp_path), "orders", "main")


def test_a_flipped_bit_is_reported(tmp_path: Path) -> None:
    Folder(str(tmp_path), ABOUT).finish(GIVEN)
    path = tmp_path / ABOUT
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ReplayError, match=ABOUT):
            about_start(str(tmp_path), "orders", "main")
