"""A problem as one line, and back."""

from __future__ import annotations

import pytest

from wormhole.model.problem import NO_PROBLEM, Problem, passing


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (
            Problem("the disk is full", "make room", "file-unwritable"),
            "the disk is full [file-unwritable]. Next: make room",
        ),
        (Problem("the disk is full", "make room"), "the disk is full. Next: make room"),
        (Problem("the disk is full", code="file-unwritable"), "the disk is full [file-unwritable]"),
        (Problem("a list [1, 2] is wrong"), "a list [1, 2] is wrong"),
        (NO_PROBLEM, ""),
    ],
)
def test_what_a_line_is_made_of_is_found_in_it_again(problem: Problem, line: str) -> None:
    assert str(problem) == line
    assert Problem.parsed(line) == problem


def test_what_passes_by_itself_has_a_code_of_its_own() -> None:
    assert passing("opening").code == "in-progress"
    assert passing("") == NO_PROBLEM
