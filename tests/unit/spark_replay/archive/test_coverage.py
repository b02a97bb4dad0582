"""What a manifest covers, and what is wrong with one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_replay.archive.coverage import chain_problems, coverage, missing, time_of
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from tests.support.archives import marker_at
from wormhole.model.position import LogPosition


def entry(begin: int, end: int, rows: int = 1) -> FileEntry:
    times = (begin * 1000 + 1, end * 1000)
    return FileEntry(
        f"{begin}-{end}", rows, 100 * rows, marker_at(begin), marker_at(end), *times, {"upsert": rows}, {"t": rows}
    )


def manifest(*files: FileEntry, begin: int = 0, end: int | None = None, losses: tuple[int, ...] = ()) -> Manifest:
    last = marker_at(end) if end is not None else files[-1].end
    known = tuple(KnownLoss(marker_at(one), f"lost before {one}") for one in losses)
    return Manifest("orders", "a", 3, 1, marker_at(begin), last, True, files, known, copy="main")


def at(number: int) -> LogPosition:
    return marker_at(number).order


LOST = manifest(entry(0, 2), entry(4, 5), losses=(4,))
LOST_AT_THE_END = manifest(entry(0, 2), end=4, losses=(4,))


@pytest.mark.parametrize(
    ("given", "spans"),
    [
        (manifest(entry(0, 2), entry(2, 5, rows=4)), [(0, 5, 2, 1, 5000)]),
        (LOST, [(0, 2, 1, 1, 2000), (4, 5, 1, 4001, 5000)]),
        (LOST_AT_THE_END, [(0, 2, 1, 1, 2000), (4, 4, 0, 0, 0)]),
        (manifest(begin=3, end=3), [(3, 3, 0, 0, 0)]),
    ],
)
def test_a_loss_splits_what_is_covered(given: Manifest, spans: list[tuple[int, ...]]) -> None:
    held = coverage(given)
    expected = [(marker_at(begin), marker_at(end), *rest) for begin, end, *rest in spans]
    assert [(one.begin, one.end, one.files, one.first_us, one.last_us) for one in held.spans] == expected
    total = (len(given.files), sum(one.rows for one in given.files), sum(one.bytes for one in given.files), True)
    assert (held.files, held.rows, held.bytes, held.whole) == total


@pytest.mark.parametrize(
    ("begin", "end", "lacks"),
    [
        (2, 4, []),
        (3, 7, [(4, 6)]),
        (0, 9, [(0, 2), (4, 6), (8, 9)]),
        (0, 1, [(0, 1)]),
        (4, 5, [(4, 5)]),
        (5, 5, []),
    ],
)
def test_what_is_missing(begin: int, end: int, lacks: list[tuple[int, int]]) -> None:
    held = manifest(entry(2, 4), entry(6, 8), begin=2, losses=(6,))
    assert missing(held, at(begin), at(end)) == tuple((at(one), at(other)) for one, other in lacks)
    assert missing(None, at(1), at(2)) == ((at(1), at(2)),)


def test_the_time_of_a_file_is_that_of_its_youngest_update() -> None:
    silent = replace(entry(1, 2), last_us=0)
    assert time_of(silent) == marker_at(2).committed_at_us
    assert time_of(replace(silent, last_us=2**60)) == 2**60
    assert time_of(replace(silent, end=replace(silent.end, committed_at_us=0))) == 0


BACKWARDS = replace(entry(2, 3), name="x", end=marker_at(1))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (manifest(entry(0, 2), entry(2, 5)), ""),
        (LOST, ""),
        (LOST_AT_THE_END, ""),
        (manifest(entry(0, 2), entry(3, 5)), "hole between 1/1/200 and 1/1/300: nothing lies between 0-2 and 3-5"),
        (manifest(entry(0, 3), entry(2, 5)), "overlap: 2-5 begins at 1/1/200, 0-3 goes up to 1/1/300"),
        (manifest(entry(1, 2), end=2), "hole between 1/1/0 and 1/1/100: nothing lies between the archive and 1-2"),
        (manifest(entry(0, 2), end=3), "hole between 1/1/200 and 1/1/300: nothing lies between 0-2 and the end"),
        (manifest(entry(0, 2), end=1), "overlap: the end begins at 1/1/100, 0-2 goes up to 1/1/200"),
        (manifest(entry(0, 2), BACKWARDS), "x ends at 1/1/100, before it begins at 1/1/200"),
        (manifest(entry(0, 2), entry(0, 2)), "0-2 is named twice"),
    ],
)
def test_problems_of_a_chain(given: Manifest, problem: str) -> None:
    found = chain_problems(given)
    assert problem in found if problem else found == []
