"""What runs the tests: blocking calls, logs, scratch copies, Spark's processes and free ports."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from blockbuster import BlockingError
from pyspark.logger import PySparkLogger

from tests.support import ports, scratch
from tests.support.one_jvm import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from tests.support.ports import free_port
from wormhole.host.state_file import write_state

# --- blocking: A blocking call of ours on a loop fails the test, also behind a test that may block ---


@pytest.mark.allow_blocking(reason="shows that the mark works")
async def test_one_that_may_block(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", {})


async def test_one_that_may_not_block_comes_behind_it(tmp_path: Path) -> None:
    with pytest.raises(BlockingError):
        write_state(tmp_path / "state.json", {})


# --- log capture: `caplog.text` is plain text, also in a process where PySpark has made loggers of its own ---


@pytest.mark.parametrize("turn", ["that makes the logger", "after it"])
def test_pyspark_does_not_format_what_other_tests_log(turn: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("wormhole.capture").warning('next: write source = "mysql://"')
    assert 'next: write source = "mysql://"' in caplog.text
    PySparkLogger.getLogger("wormhole.capture.pyspark").propagate = False


# --- one jvm ---


FRAMES = "tests/unit/spark_replay/test_frames.py"
COMPACT = "tests/unit/spark_replay/archive/test_compact.py"
OTHER = "tests/unit/spark_replay/archive/test_reader.py"
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
        ("tests/unit/spark_replay/archive/test_storage.py::test_x", "s3"),
        ("tests/contract/test_log_source.py::test_x", "mysql, contracts"),
        ("tests/integration/test_mysql_source.py::test_x", "mysql"),
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


# --- scratch: the scratch copy: complete, without anything compiled, and tested as itself ---


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    for name in (
        "wormhole/a.py",
        "wormhole/a.cpython-311.so",
        ".venv/bin/python",
        "build/x",
        ".git/HEAD",
        ".hypothesis/unicode_data/a",
        "pyproject.toml",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    monkeypatch.setattr(scratch, "ROOT", root)
    return root


def test_the_copy_holds_sources_and_nothing_compiled(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    (target / "old").mkdir(parents=True)
    assert scratch.make_copy(target) == target
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == [".hypothesis/unicode_data/a", "pyproject.toml", "wormhole/a.py"]
    assert not (target / "old").exists()


def test_the_copy_is_first_on_the_path_interpreted_and_keeps_byte_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = scratch.environment(tmp_path)
    assert environment["PYTHONPATH"] == str(tmp_path)
    assert environment["WORMHOLE_BUILD_EXT"] == "no"
    assert environment["PYTHONDONTWRITEBYTECODE"] == ""


@pytest.mark.parametrize(
    ("program", "status"), [("print('a'); raise SystemExit(3)", 3), ("import time; print('a'); time.sleep(3600)", 124)]
)
def test_a_run_gives_its_status_and_output_and_is_killed_when_it_hangs(
    tmp_path: Path, program: str, status: int
) -> None:
    (tmp_path / "pytest.py").write_text(program)
    settings = {"PYTHONUNBUFFERED": "1"}
    assert scratch.run_tests(tmp_path, [], timeout=2.0, quiet=True, settings=settings) == (status, "a\n")


# --- ports: A free port: nobody's now, and nobody else's next ---


def test_no_two_questions_get_the_same_answer_although_nobody_listens_yet() -> None:
    found = [free_port() for _ in range(200)]
    assert len(set(found)) == 200


def test_it_is_none_that_the_kernel_gives_to_others() -> None:
    assert all(20_000 <= free_port() < 32_768 for _ in range(200))


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port() - 20_000  # a test run claims ports of its own: other runs claim others
    numbers: Iterator[int] = chain([first + 1, first + 1], count(first + 2))
    monkeypatch.setattr(ports, "_numbers", numbers)
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() > taken
