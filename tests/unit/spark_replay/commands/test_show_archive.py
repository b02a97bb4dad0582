from __future__ import annotations

import pytest

from spark_replay.archive.compact import Merged
from spark_replay.commands.show_archive import _merged_object, _merged_row


@pytest.mark.parametrize(
    ("merged", "after", "remark", "more"),
    [
        (Merged("main", "merged", 2, 100, 90), "90 B", "", {"bytes_after": 90}),
        (Merged("main", "overtaken", 2, 100), "-", "left alone: another writer was first", {}),
        (
            Merged("main", "failed", 2, 100, problem="x is damaged", hint="restore it"),
            "-",
            "x is damaged; next: restore it",
            {"problem": "x is damaged", "next": "restore it"},
        ),
    ],
)
def test_what_became_of_small_files(merged: Merged, after: str, remark: str, more: dict[str, object]) -> None:
    assert _merged_row(merged) == ("main", "2", "100 B", after, remark)
    common = {"shard": "main", "files": 2, "bytes_before": 100, "state": merged.state}
    assert _merged_object(merged) == common | more
