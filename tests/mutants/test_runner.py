"""The mutants' runner: what it accepts as caught, and that it leaves the tree as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.runner import GREEN, KILLED, RED, Fault, FaultError, applied, check_faults, run_all, table

FAULT = Fault("plus", "sum.py", "a + b", "a - b", ("test_sum.py",), "sums are right")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sum.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "test_sum.py").write_text("")
    return tmp_path


class FakePytest:
    """Answers green while the tree is sound, and with ``status`` and ``output`` while a fault is in it."""

    def __init__(self, status: int, output: str = "FAILED test_sum.py::test_add - assert 1 == 3") -> None:
        self.answer = (status, output)
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, copy: Path, selection: Sequence[str]) -> tuple[int, str]:
        text = (copy / "sum.py").read_text()
        self.seen.append((text, tuple(selection)))
        return (GREEN, "1 passed") if "a + b" in text else self.answer


def quiet(_: str) -> None:
    """Take what the runner says, and drop it."""


def test_a_fault_that_fails_a_test_is_caught_and_taken_out_again(tree: Path) -> None:
    fake = FakePytest(RED)
    (result,) = run_all([FAULT], tree, run=fake, say=quiet)
    assert result.caught
    assert result.what == "FAILED test_sum.py::test_add"
    assert [("a - b" in text, selection) for text, selection in fake.seen] == [
        (False, ("test_sum.py",)),
        (True, ("test_sum.py",)),
    ]
    assert "a + b" in (tree / "sum.py").read_text()
    assert table([result]) == "caught  plus  sums are right"


@pytest.mark.parametrize(
    ("status", "output", "caught"),
    [
        (GREEN, "1 passed", False),
        (2, "ERROR test_sum.py - SyntaxError", False),
        (1, "ERROR    sum:sum.py:1 a record of the log", False),
        (5, "no tests ran", False),
        (KILLED, "", True),
    ],
)
def test_only_failing_tests_count(tree: Path, status: int, output: str, caught: bool) -> None:
    (result,) = run_all([FAULT], tree, run=FakePytest(status, output), say=quiet)
    assert result.caught is caught
    assert ("MISSED" in table([result])) is not caught


def test_red_before_any_fault_is_refused(tree: Path) -> None:
    with pytest.raises(FaultError, match="not green without any fault"):
        run_all([FAULT], tree, run=lambda copy, selection: (RED, "FAILED x"), say=quiet)


def test_the_file_is_restored_when_the_run_is_interrupted(tree: Path) -> None:
    def interrupted(copy: Path, selection: Sequence[str]) -> tuple[int, str]:
        if "a - b" in (copy / "sum.py").read_text():
            raise KeyboardInterrupt
        return GREEN, ""

    with pytest.raises(KeyboardInterrupt):
        run_all([FAULT], tree, run=interrupted, say=quiet)
    assert "a + b" in (tree / "sum.py").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "nowhere"}, "stands 0 times"),
        ({"old": "a"}, "stands 3 times"),
        ({"new": "a + b"}, "changes nothing"),
        ({"file": "gone.py"}, "gone.py"),
        ({"tests": ()}, "names no tests"),
        ({"tests": ("test_gone.py::test_x",)}, "no such tests: test_gone.py"),
        ({"tests": ("test_sum.py::test_gone[1]",)}, "no such tests: test_sum.py::test_gone"),
    ],
)
def test_a_fault_that_does_not_fit_is_named(tree: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(FaultError, match=message):
        check_faults([replace(FAULT, **change)], tree)  # type: ignore[arg-type]


def test_a_name_given_twice_is_refused(tree: Path) -> None:
    with pytest.raises(FaultError, match="two faults have this name"):
        check_faults([FAULT, FAULT], tree)


def test_applied_replaces_once() -> None:
    assert applied(FAULT, "x = a + b") == "x = a - b"
