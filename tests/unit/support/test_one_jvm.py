"""Files with Spark share a process; a system test has a turn of its own, unless its file shares a fixture."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.one_jvm import pytest_collection_modifyitems, pytest_xdist_make_scheduler

FRAMES = "tests/unit/spark_replay/test_frames.py"
COMPACT = "tests/unit/spark_replay/archive/test_compact.py"
OTHER = "tests/unit/spark_replay/archive/test_rows.py"
OWNERS, COMMAND_LINE = "tests/system/test_owners.py", "tests/system/test_command_line.py"


def scheduler(dist: str) -> Any:
    config = SimpleNamespace(getvalue=lambda _: dist, option=SimpleNamespace(tx=["2*popen"]))
    log = SimpleNamespace(loadscopesched=None, loadfilesched=None)
    return pytest_xdist_make_scheduler(cast("Any", config), cast("Any", log))


@pytest.mark.parametrize(
    ("test", "shared"),
    [
        (f"{FRAMES}::test_x[a::b]", "spark"),
        (f"{COMPACT}::test_x", "spark"),
        (f"{OTHER}::test_x", OTHER),
        (f"{OWNERS}::test_x[a::b]", f"{OWNERS}::test_x[a::b]"),
        (f"{COMMAND_LINE}::test_x", COMMAND_LINE),
        ("tests/none.py::test_x", "tests/none.py"),
    ],
)
def test_what_a_test_shares_its_process_with(test: str, shared: str) -> None:
    assert scheduler("loadfile")._split_scope(test) == shared


@dataclass
class Item:
    nodeid: str


def test_what_takes_longest_comes_first() -> None:
    items = [Item(f"{file}::test_x") for file in (OTHER, OWNERS, "tests/docs/test_readme.py", FRAMES)]
    for config, first in ((SimpleNamespace(), [OTHER, OWNERS]), (SimpleNamespace(workerinput={}), [FRAMES, OWNERS])):
        pytest_collection_modifyitems(cast("Any", config), cast("Any", items))
        assert [item.nodeid.partition("::")[0] for item in items[:2]] == first
    assert items[-1].nodeid.startswith(OTHER)


def test_other_distributions_are_left_to_xdist() -> None:
    assert scheduler("load") is None
