from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.ranges import (
    Asked,
    asked_from,
    asked_until,
    done_rows,
    files_between,
    held,
    holding,
    range_of,
)
from tests.support.archives import FIRST_US, marker_at
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.position import LogPosition

NOW_US = FIRST_US + 1_000_000_000


def entry(first: int, last: int, rows: int = 10) -> FileEntry:
    times = (FIRST_US + (first + 1) * 1_000_000, FIRST_US + last * 1_000_000)
    return FileEntry(f"{first}.parquet", rows, 100 * rows, marker_at(first), marker_at(last), *times, {}, {})


def manifest(*, whole: bool = False, first: int = 10) -> Manifest:
    files = (entry(first, 20), entry(20, 30), entry(30, 40))
    return Manifest("d", "a", 1, 1, marker_at(first), marker_at(40), whole, files)


def markers(one: FileEntry) -> list[Any]:
    first, last = int(one.begin.delivered), int(one.end.delivered)
    return [marker_at(number) for number in range(first + 2, last + 1, 2)]


def ranged(start: Asked = Asked(), stop: Asked = Asked(), *, stored: int = 33, whole: bool = False) -> tuple[str, str]:  # noqa: B008
    found = range_of(manifest(whole=whole), marker_at(stored), start, stop, markers)
    return found.begin.delivered, found.until.delivered


def at(number: float) -> Asked:
    return Asked("t", at_us=FIRST_US + round(number * 1_000_000))


def place(number: int, past: int = 0) -> Asked:
    return Asked("p", place=LogPosition(1, 1, 100 * number + past))


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (Asked(), Asked(), ("33", "40")),
        (Asked("earliest", earliest=True), Asked(), ("10", "40")),
        (place(25), Asked(), ("24", "40")),
        (place(30), Asked(), ("30", "40")),
        (place(31, 99), place(34, 1), ("30", "36")),
        (at(25), Asked(), ("24", "40")),
        (at(25.5), at(36.5), ("24", "38")),
        (at(21), at(10_000), ("20", "40")),
        (Asked(), place(40), ("33", "40")),
    ],
)
def test_a_range_begins_and_ends_at_datamarkers_that_cover_it(
    start: Asked, stop: Asked, expected: tuple[str, str]
) -> None:
    assert ranged(start, stop) == expected


def test_a_beginning_that_was_asked_for_sets_the_flow_back() -> None:
    """Where the datamarker stands there now it may have moved on before the flow is held."""
    back = range_of(manifest(), marker_at(33), place(24), Asked(), markers)
    assert (back.rewinds, back.rows, back.bytes) == (True, 20, 2000)
    here = range_of(manifest(), marker_at(33), place(33), Asked(), markers)
    assert (here.rewinds, here.rows) == (True, 10)
    own = range_of(manifest(), marker_at(33), Asked(), Asked(), markers)
    assert (own.rewinds, own.rows) == (False, 10)


@pytest.mark.parametrize("start", [Asked(), place(3), at(3)])
def test_a_range_that_is_not_held_is_refused_with_what_is_held(start: Asked) -> None:
    with pytest.raises(ReplayError, match=r"holds 1/1/1000 to 1/1/4000, committed from 2023-11-14T22:13:31Z") as caught:
        ranged(start, stored=5)
    assert "accept-loss" in str(caught.value.hint)


@pytest.mark.parametrize("start", [Asked(), place(3), at(3), Asked("earliest", earliest=True)])
def test_before_an_archive_that_begins_with_the_log_there_was_nothing(start: Asked) -> None:
    assert ranged(start, stored=5, whole=True) == ("5", "40")


@pytest.mark.parametrize(
    ("start", "stop", "stored", "kind", "text"),
    [
        (Asked(), place(41), 33, ReplayError, "does not reach up to"),
        (Asked(), Asked(), 41, ReplayError, "behind the end of the archive"),
        (Asked(), place(20), 33, UsageError, "before the beginning"),
        (place(38), Asked(), 33, UsageError, "would never be delivered"),
    ],
)
def test_what_cannot_be_is_refused(start: Asked, stop: Asked, stored: int, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ranged(start, stop, stored=stored)


def test_what_was_asked_for_is_read_as_people_write_it() -> None:
    assert asked_from("", "", NOW_US) == asked_from("marker", "", NOW_US) == asked_until("end", NOW_US) == Asked()
    assert asked_from("earliest", "", NOW_US).earliest
    assert asked_from("1/2/3", "", NOW_US).place == LogPosition(1, 2, 3)
    assert asked_from("", "2m", NOW_US).at_us == NOW_US - 120_000_000
    noon = round(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp() * 1e6)
    for text in ("2026-05-01T12:00:00Z", "2026-05-01T14:00:00+02:00", "2026-05-01 12:00"):
        assert asked_until(text, NOW_US).at_us == noon


@pytest.mark.parametrize(
    ("start", "since"), [("1/2", ""), ("yesterday", ""), ("1/2/x", ""), ("", "1/2/3"), ("1/2/3", "2h")]
)
def test_what_is_neither_place_nor_time_is_refused(start: str, since: str) -> None:
    with pytest.raises(UsageError):
        asked_from(start, since, NOW_US)


def test_files_and_rows_between_two_places() -> None:
    whole = manifest()
    names = [one.name for one in files_between(whole, marker_at(20), marker_at(30))]
    assert names == ["20.parquet"]
    assert done_rows(whole.files, marker_at(25).order) == 15
    assert done_rows(whole.files, marker_at(40).order) == 30
    assert done_rows(whole.files, LogPosition(0, 0, 0)) == 0


def test_an_empty_archive_says_so() -> None:
    assert "holds nothing yet" in held(Manifest("d", "a", 1, 1, marker_at(1), marker_at(1), False))


def test_what_is_not_held_is_retention_s_at_the_beginning_and_a_restored_manifest_s_at_the_end() -> None:
    whole = manifest()
    assert holding(whole, "a", marker_at(10), marker_at(40)) is whole
    for present, until, text in (
        (whole, 41, "put the newer manifests back"),
        (whole.without_first(1), 40, "retention let it go"),
        (None, 40, "retention let it go"),
    ):
        with pytest.raises(ReplayError) as caught:
            holding(present, "a", marker_at(10), marker_at(until))
        assert text in str(caught.value.hint)
