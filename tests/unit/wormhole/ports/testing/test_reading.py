"""The rules of the port that are checked while a log is read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datastores.memory.source import MemorySource
from tests.support.present import present
from wormhole.model.position import LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.testing import reading
from wormhole.ports.testing.reading import Read, read_log, read_until


def segments(max_bytes: int = 1) -> list[Segment]:
    """Segments of two transactions of two updates each."""
    source = MemorySource()
    reader = source.open(source.latest())
    for n in range(2):
        source.commit([(Op.INSERT, "t", n, {"a": 1}), (Op.INSERT, "t", n + 2, {"a": 1})])
    found = []
    while (segment := reader.read(max_bytes, 0.0)) is not None:
        found.append(segment)
    return found


def test_what_was_read() -> None:
    read = Read()
    for segment in segments():
        read.add(segment)
    assert read.keys() == [0, 2, 1, 3]
    assert read.ids() == ["mem:1:0", "mem:1:1", "mem:2:0", "mem:2:1"]
    assert read.ended == [("memory", "mem:1"), ("memory", "mem:2")]
    assert read.pieces == 2
    assert not read.unfinished


def broken(which: int, **changes: Any) -> list[Segment]:
    found = segments()
    found[which] = replace(found[which], **changes)
    return found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (broken(1, begin=LogPosition(1, 1, 1)), "begins at 1/1/1 and not at .*, where the one before ended"),
        (broken(1, begin=LogPosition(1, 9, 0)), "ends at .*, before its beginning 1/9/0"),
        (broken(0, marker=segments()[-1].marker), "is not at the segment's end"),
        (broken(0, marker=replace(segments()[-1].marker, order=segments()[0].end)), "is read from a later place"),  # type: ignore[type-var]
        (segments()[::3], "begins at .* and not at"),
    ],
    ids=["does not adjoin", "ends before it begins", "a marker elsewhere", "read from later", "one is missing"],
)
def test_a_rule_that_is_broken_is_named(found: list[Segment], message: str) -> None:
    read = Read()
    with pytest.raises(AssertionError, match=message):
        for segment in found:
            read.add(segment)


def test_a_marker_inside_a_transaction() -> None:
    [first, *_] = segments()
    last = present(segments()[-1].marker)
    inside = replace(last, order=first.end, read_from=first.end)
    with pytest.raises(AssertionError, match="lies inside a transaction"):
        Read().add(replace(first, marker=inside))


def test_the_end_that_is_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LIMIT_S", 0.0)
    reader = cast(Any, SimpleNamespace(read=lambda max_bytes, wait_s: None))
    with pytest.raises(AssertionError, match=r"after 0 s the reader is at None; the log ends at 1/2/3"):
        read_until(reader, LogPosition(1, 2, 3))


def test_a_log_is_read_to_its_present_end() -> None:
    source = MemorySource()
    start = source.latest()
    source.commit([(Op.INSERT, "t", 1)])
    assert read_log(source, start).keys() == [1]
    assert read_log(source, source.latest()).keys() == []
