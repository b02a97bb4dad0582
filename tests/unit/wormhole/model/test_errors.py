"""Errors, problems and findings: what broke, its code, and whose move it is."""

from __future__ import annotations

import json
import re

import pytest

from wormhole.model import errors
from wormhole.model.findings import Finding, Report, Severity
from wormhole.model.problem import NO_PROBLEM, Problem, passing

# --- The tree of errors is the one that is drawn, and an error says what broke, where, and what to do


def drawn() -> dict[str, tuple[str, str]]:
    """Class to parent and code, read from the drawing in the module's docstring."""
    parents: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in str(errors.__doc__).splitlines():
        match = re.match(r"    ([│ ├└─]*)(\w+) +([a-z-]+) ", line)
        if not match:
            continue
        depth = len(match[1]) // 4
        path[depth:] = [match[2]]
        parents[match[2]] = (path[depth - 1] if depth else "Exception", match[3])
    return parents


def defined() -> dict[str, tuple[str, str]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    return {cls.__name__: (cls.__bases__[0].__name__, vars(cls)["code"]) for cls in found}


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == defined()
    assert set(errors.__all__) == defined().keys()


def test_every_error_is_a_move_of_exactly_one_side() -> None:
    for name in defined().keys() - {"WormholeError"}:
        cls = getattr(errors, name)
        assert sum(issubclass(cls, side) for side in (errors.Retryable, errors.Fatal, errors.UsageError)) == 1


def test_text_has_place_code_and_next_step() -> None:
    error = errors.DecodeError("record is cut", shard="log", position="1/2/3", hint="look at the disk")
    assert str(error) == "record is cut (shard log, position 1/2/3) [log-undecodable]. Next: look at the disk"
    assert str(errors.DecodeError("record is cut", code="log-damaged")) == "record is cut [log-damaged]"
    assert error.problem == Problem("record is cut (shard log, position 1/2/3)", "look at the disk", "log-undecodable")
    assert error.args == ("record is cut",)


def test_a_place_that_the_message_names_is_not_named_twice() -> None:
    named = errors.Diverged("not executed before 5/1/3580 (binlog.000001:3580)", shard="log", position="5/1/3580")
    assert named.text == "not executed before 5/1/3580 (binlog.000001:3580) (shard log)"
    for another in ("at 5/1/35801", "at 15/1/3580", "nowhere"):
        assert errors.Diverged(another, position="5/1/3580").text == f"{another} (position 5/1/3580)"


def test_a_layer_that_knows_more_adds_to_it_and_overwrites_nothing() -> None:
    error = errors.SourceUnavailable("no answer", position="1/1/1")
    assert error.at(flow="app/log", position="9/9/9") is error
    assert error.text == "no answer (flow app/log, position 1/1/1)"


def test_a_purged_place_carries_its_range() -> None:
    error = errors.PositionPurged("gone", first_missing="5", last_missing="9", position="1/1/5")
    assert (error.first_missing, error.last_missing) == ("5", "9")
    with pytest.raises(errors.Fatal, match="gone"):
        raise error


# --- A problem as one line, and back


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


# --- findings


def test_the_worst_finding_counts() -> None:
    report = Report("rocksdb:///x", {"library": "9"})
    worst = [report.severity.value]
    for severity in (Severity.OK, Severity.WARN, Severity.PROBLEM, Severity.OK):
        report.add("check", severity, "what", "because", "next")
        worst.append(report.severity.value)
    assert worst == ["ok", "ok", "warn", "problem", "problem"]
    assert report.findings[1] == Finding("check", Severity.WARN, "what", "because", "next")


def test_as_json() -> None:
    report = Report("rocksdb:///x", {"library": "9"})
    report.add("retention", Severity.WARN, "hm", "because", "next")
    assert json.loads(report.to_json()) == {
        "url": "rocksdb:///x",
        "severity": "warn",
        "facts": {"library": "9"},
        "findings": [
            {
                "check": "retention",
                "code": "log-kept-short",
                "severity": "warn",
                "what": "hm",
                "because": "because",
                "next_step": "next",
            }
        ],
    }


def test_a_finding_has_the_code_of_its_check_where_something_is_wrong() -> None:
    assert Finding("tls", Severity.WARN, "what").known_code == "connection-exposed"
    assert Finding("publishers", Severity.PROBLEM, "what", code="log-stuck").known_code == "log-stuck"
    assert Finding("tls", Severity.OK, "what").known_code == ""
    assert Finding("of another package", Severity.WARN, "what").known_code == ""
