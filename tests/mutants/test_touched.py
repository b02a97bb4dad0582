"""The faults of a push: those in what it changes, a bounded number, the same at each run of the commit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.runner import GREEN, KILLED, RED, Fault
from tests.mutants.touched import MOST, NoBaseError, changed_files, draw, run_within

FAULTS = [
    Fault(f"fault-{number}", "sum.py", f"= {number} ", "= a ", ("test_sum.py::test_add",), "sums are right")
    for number in range(2 * MOST)
]


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def committed(folder: Path, name: str) -> str:
    (folder / name).write_text(name)
    git(folder, "add", ".")
    git(folder, "commit", "-m", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init")
    for name in ("first", "second"):
        committed(folder, name)
    return folder


def test_a_push_to_main_is_its_last_commit_and_a_branch_all_of_its_own(origin: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", str(origin), str(clone))
    main = git(clone, "rev-parse", "HEAD")
    assert changed_files(clone)[2] == {"second"}
    git(clone, "checkout", "-b", "branch")
    committed(clone, "third")
    commit = committed(clone, "fourth")
    assert changed_files(clone) == (commit, main, {"third", "fourth"})
    assert changed_files(clone, "HEAD~1")[2] == {"fourth"}


def test_without_a_commit_before_there_is_nothing_to_compare_with(origin: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--depth", "1", f"file://{origin}", str(shallow))
    with pytest.raises(NoBaseError):
        changed_files(shallow)
    with pytest.raises(NoBaseError, match="nowhere"):
        changed_files(origin, "nowhere")


def test_the_commit_draws_from_the_faults_whose_file_or_tests_changed() -> None:
    assert draw(FAULTS, {"product.py"}, "a") == ([], 0)
    drawn, touched = draw(FAULTS, {"sum.py"}, "a")
    assert (len(drawn), touched) == (MOST, len(FAULTS))
    assert draw(FAULTS, {"test_sum.py"}, "a") == (drawn, touched)
    assert draw(FAULTS, {"sum.py"}, "b")[0] != drawn


def test_no_fault_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("".join(f"x = {number} \n" for number in range(len(FAULTS))))
    (tmp_path / "test_sum.py").write_text("def test_add(): ...")
    said: list[str] = []
    outcomes = iter([GREEN, RED, KILLED, GREEN, RED])  # without and with the first, without the second, ...

    def run(copy: Path, _: Sequence[str]) -> tuple[int, str]:
        return next(outcomes), "FAILED test_sum.py::test_add"

    times = iter([0.0, 1.0, 2.0, 3.0, 91.0])
    results = run_within(FAULTS[:5], tmp_path, run=run, clock=lambda: next(times), say=said.append)
    assert [result.fault.name for result in results] == ["fault-0", "fault-2"]
    assert said[-1] == "left out after 90 s: fault-3, fault-4"
