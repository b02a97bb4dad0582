"""What each task of an audit does with the rows of an archive. That Spark brings them is the system test's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_replay.archive.columns import place_bytes
from spark_replay.audit.archived import Archived, AuditPart, AuditPlaces, Selecting, _Finding, _Tallying, part_of
from spark_replay.replay.pieces import Formats
from spark_replay.selected import plain_rows
from tests.support.archives import FIRST_US, KEYS, batches_of, gone, put, tx, write_archive
from wormhole.audit.delivery_counts import RangeKind
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, update_hash, window_of

WINDOW = window_of(FIRST_US)
COUNTED, PARTIAL, REDELIVERED = RangeKind


def at(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def place(offset: int, *, inside: bool = False, index: int = 0) -> bytes:
    return place_bytes(at(offset), inside, index)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (place(100), AuditPart.UNAUDITED),
        (place(100, inside=True), AuditPart.COUNTED),
        (place(101), AuditPart.COUNTED),
        (place(200, index=9), AuditPart.COUNTED),
        (place(200, inside=True), AuditPart.UNAUDITED),
        (place(250), AuditPart.UNAUDITED),
        (place(400), AuditPart.COUNTED),
        (place(401), AuditPart.PENDING),
    ],
)
def test_counts_cover_what_lies_behind_their_begin_up_to_their_end(where: bytes, expected: AuditPart) -> None:
    assert part_of(where, AuditPlaces.of({COUNTED: [(at(300), at(400)), (at(100), at(200))]})) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (place(50), AuditPart.UNAUDITED),
        (place(150), AuditPart.COUNTED),
        (place(200), AuditPart.COUNTED),
        (place(200, inside=True), AuditPart.PARTIAL),
        (place(300), AuditPart.PARTIAL),
        (place(300, inside=True), AuditPart.COUNTED),
        (place(450), AuditPart.PARTIAL),
        (place(501), AuditPart.PENDING),
    ],
)
def test_where_a_replay_delivered_in_part_counts_say_nothing_unless_it_was_counted_too(
    where: bytes, expected: AuditPart
) -> None:
    places = AuditPlaces.of(
        {COUNTED: [(at(300), at(400)), (at(100), at(200))], PARTIAL: [(at(150), at(450)), (at(420), at(500))]}
    )
    assert part_of(where, places) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [(place(150), AuditPart.COUNTED), (place(250), AuditPart.REDELIVERED), (place(350), AuditPart.UNAUDITED)],
)
def test_what_a_replay_delivered_a_second_time_is_separate(where: bytes, expected: AuditPart) -> None:
    assert (
        part_of(
            where,
            AuditPlaces.of({COUNTED: [(at(100), at(300)), (at(400), at(500))], REDELIVERED: [(at(200), at(400))]}),
        )
        is expected
    )


def test_without_counts_all_is_unaudited() -> None:
    assert part_of(place(1), AuditPlaces()) is AuditPart.UNAUDITED


def rows(folder: Path) -> list[pa.RecordBatch]:
    """Three transactions, of two, one and one updates; the last in another window."""
    transactions = [
        tx(put(b"a", b"1"), put(b"b", b"2")),
        tx(gone(b"a")),
        tx(put(b"c", b"3"), at_us=FIRST_US + WINDOW_S * 1_000_000),
    ]
    there = (folder / "archive").exists()
    store = write_archive(folder / "archive", {} if there else {"db1": [transactions]})
    return [plain_rows(batch, "db1") for batch in batches_of(store, "db1")]


def selecting(where: str = "") -> Selecting:
    return Selecting(where, (), Formats(), {KEYS.id: KEYS.canonical})


def tallied(folder: Path, where: str, places: AuditPlaces) -> dict[tuple[int, AuditPart], tuple[int, int]]:
    (batch,) = _Tallying(selecting(where), {"db1": places})(iter(rows(folder)))
    return {(row["window"], AuditPart(row["part"])): (row["updates"], row["hash"] % 2**64) for row in batch.to_pylist()}


def hashes(folder: Path) -> list[int]:
    ids = [(row["tx_source"], row["tx_number"], row["tx_index"]) for batch in rows(folder) for row in batch.to_pylist()]
    return [update_hash(*one) for one in ids]


def test_rows_are_tallied_by_window_and_where_they_lie(tmp_path: Path) -> None:
    of = hashes(tmp_path)
    found = tallied(tmp_path, "", AuditPlaces.of({COUNTED: [(at(100), at(200))]}))
    assert found == {
        (WINDOW, AuditPart.UNAUDITED): (2, (of[0] + of[1]) % 2**64),
        (WINDOW, AuditPart.COUNTED): (1, of[2]),
        (WINDOW + 1, AuditPart.PENDING): (1, of[3]),
    }


def test_only_what_the_filter_selects_counts(tmp_path: Path) -> None:
    of = hashes(tmp_path)
    found = tallied(tmp_path, 'key startswith "b"', AuditPlaces.of({COUNTED: [(at(0), at(900))]}))
    assert found == {(WINDOW, AuditPart.COUNTED): (1, of[1])}


def test_an_update_is_found_by_its_hash(tmp_path: Path) -> None:
    of = hashes(tmp_path)
    looking = _Finding(selecting(), {("db1", WINDOW): frozenset({of[1]}), ("db1", WINDOW + 1): frozenset({5})})
    found = [row for batch in looking(iter(rows(tmp_path))) for row in batch.to_pylist()]
    assert [(row["window"], row["hash"] % 2**64, row["id"].split(":")[1:]) for row in found] == [
        (WINDOW, of[1], ["1", "1"])
    ]


def test_nothing_archived_is_nothing() -> None:
    assert Archived().of(AuditPart.COUNTED) == (0, 0)
