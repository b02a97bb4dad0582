"""What a manifest covers, and what is wrong with one."""

from __future__ import annotations

from dataclasses import replace

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


def test_one_span() -> None:
    held = coverage(manifest(entry(0, 2), entry(2, 5, rows=4)))
    [span] = held.spans
    assert (span.begin, span.end, span.files) == (marker_at(0), marker_at(5), 2)
    assert (span.first_us, span.last_us) == (1, 5000)
    assert (held.files, held.rows, held.bytes, held.whole) == (2, 5, 500, True)


def test_a_loss_splits() -> None:
    held = coverage(manifest(entry(0, 2), entry(4, 5), losses=(4,)))
    assert [(span.begin, span.end) for span in held.spans] == [
        (marker_at(0), marker_at(2)),
        (marker_at(4), marker_at(5)),
    ]


def test_a_loss_behind_which_nothing_came_yet() -> None:
    given = manifest(entry(0, 2), end=4, losses=(4,))
    assert [(span.begin, span.files) for span in coverage(given).spans] == [(marker_at(0), 1), (marker_at(4), 0)]
    assert chain_problems(given) == []


def test_nothing_but_a_beginning() -> None:
    [span] = coverage(manifest(begin=3, end=3)).spans
    assert (span.begin, span.end, span.files, span.first_us) == (marker_at(3), marker_at(3), 0, 0)


def test_what_is_missing() -> None:
    held = manifest(entry(2, 4), entry(6, 8), begin=2, losses=(6,))
    assert missing(held, at(2), at(4)) == ()
    assert missing(held, at(3), at(7)) == ((at(4), at(6)),)
    assert missing(held, at(0), at(9)) == ((at(0), at(2)), (at(4), at(6)), (at(8), at(9)))
    assert missing(held, at(0), at(1)) == ((at(0), at(1)),)
    assert missing(held, at(4), at(5)) == ((at(4), at(5)),)
    assert missing(held, at(5), at(5)) == ()
    assert missing(None, at(1), at(2)) == ((at(1), at(2)),)


def test_the_time_of_a_file_is_that_of_its_youngest_update() -> None:
    silent = replace(entry(1, 2), last_us=0)
    assert time_of(silent) == marker_at(2).committed_at_us
    assert time_of(replace(silent, last_us=2**60)) == 2**60
    assert time_of(replace(silent, end=replace(silent.end, committed_at_us=0))) == 0


def test_a_chain_without_a_problem() -> None:
    assert chain_problems(manifest(entry(0, 2), entry(2, 5))) == []
    assert chain_problems(manifest(entry(0, 2), entry(4, 5), losses=(4,))) == []


def test_problems_of_a_chain() -> None:
    assert chain_problems(manifest(entry(0, 2), entry(3, 5))) == [
        f"hole between {at(2)} and {at(3)}: nothing lies between 0-2 and 3-5"
    ]
    assert chain_problems(manifest(entry(0, 3), entry(2, 5))) == [
        f"overlap: 2-5 begins at {at(2)}, 0-3 goes up to {at(3)}"
    ]
    assert chain_problems(manifest(entry(1, 2), end=2)) == [
        f"hole between {at(0)} and {at(1)}: nothing lies between the archive and 1-2"
    ]
    assert chain_problems(manifest(entry(0, 2), end=3)) == [
        f"hole between {at(2)} and {at(3)}: nothing lies between 0-2 and the end"
    ]
    assert chain_problems(manifest(entry(0, 2), end=1)) == [
        f"overlap: the end begins at {at(1)}, 0-2 goes up to {at(2)}"
    ]
    backwards = replace(entry(2, 3), name="x", end=marker_at(1))
    assert f"x ends at {at(1)}, before it begins at {at(2)}" in chain_problems(manifest(entry(0, 2), backwards))
    assert "0-2 is named twice" in chain_problems(manifest(entry(0, 2), entry(0, 2)))
