"""Files with Spark share a process, and only those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.support.one_jvm import pytest_xdist_make_scheduler, scope

FRAMES = "tests/unit/spark_replay/test_frames.py"
COMPACT = "tests/unit/spark_replay/archive/test_compact.py"
OTHER = "tests/unit/spark_replay/archive/test_rows.py"


def scheduler(dist: str) -> Any:
    config = SimpleNamespace(getvalue=lambda _: dist, option=SimpleNamespace(tx=["2*popen"]))
    log = SimpleNamespace(loadscopesched=None, loadfilesched=None)
    return pytest_xdist_make_scheduler(cast("Any", config), cast("Any", log))


def test_files_with_spark_share_a_process_and_each_other_file_has_its_own_turn() -> None:
    found = [scheduler("loadfile")._split_scope(f"{file}::test_x[a::b]") for file in (FRAMES, COMPACT, OTHER)]
    assert found == ["spark", "spark", OTHER]
    assert scope("tests/none.py") == "tests/none.py"


def test_other_distributions_are_left_to_xdist() -> None:
    assert scheduler("load") is None
