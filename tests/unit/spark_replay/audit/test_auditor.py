"""From delivery counts and manifests to what is compared, and what each task of an audit counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.columns import place_bytes
from spark_replay.archive.manifest import Manifest
from spark_replay.audit.archived import Archived, AuditPart, AuditPlaces, Selecting, _Finding, _Tallying, part_of
from spark_replay.audit.auditor import Audit, _lacking, flow_counts, write_parquet
from spark_replay.audit.compare import AuditFinding, AuditWindow
from spark_replay.replay.pieces import Formats
from spark_replay.selected import plain_rows
from tests.support.archives import FIRST_US, KEYS, batches_of, gone, marker_at, put, tx, write_archive
from wormhole.audit.delivery_counts import Range, RangeKind
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, update_hash, window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

# --- archived ---


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


# --- auditor ---


US = 600_000_000
FIRST = window_of(marker_at(1).committed_at_us)


def between(begin: int, end: int) -> Range:
    return LogPosition(1, 1, begin), LogPosition(1, 1, end)


def range_(flow: str, filter_hash: str, begin: int, end: int) -> admin_pb2.AuditRange:
    places = (push_pb2.Position(incarnation=1, file=1, offset=offset) for offset in (begin, end))
    return admin_pb2.AuditRange(flow=flow, filter_hash=filter_hash, begin=next(places), end=next(places))


def test_counts_under_the_present_filter_of_the_application_count() -> None:
    windows = [
        admin_pb2.AuditWindow(flow=flow, filter_hash=filter_hash, window=7)
        for flow, filter_hash in (("cache/db1", "f"), ("cache/db1", "old"), ("search/db1", "f"))
    ]
    reply = admin_pb2.AuditReply(
        windows=windows,
        delay_limits_s=[1.0],
        ranges=[range_("cache/db1", "f", 1, 5), range_("cache/db2", "old", 1, 5), range_("search/db1", "f", 1, 5)],
    )
    (one,) = flow_counts("cache", "f", [reply, admin_pb2.AuditReply()])
    assert (one.flow, one.shard, dict(one.windows), one.limits) == ("cache/db1", "db1", {7: windows[0]}, (1.0,))
    assert one.ranges == {COUNTED: [between(1, 5)], PARTIAL: [], REDELIVERED: []}


def test_a_flow_that_was_only_partially_replayed_has_counts() -> None:
    replayed = range_("cache/db1", "f", 1, 5)
    replayed.partly = True
    (one,) = flow_counts("cache", "f", [admin_pb2.AuditReply(ranges=[replayed])])
    assert one.ranges == {COUNTED: [], PARTIAL: [between(1, 5)], REDELIVERED: []}


@pytest.mark.parametrize(("kind", "redelivered"), [("again", [(2, 4)]), ("unheard", [])])
def test_other_ranges_are_separate_and_those_of_earlier_releases_are_ignored(
    kind: str, redelivered: list[tuple[int, int]]
) -> None:
    other = range_("cache/db1", "f", 2, 4)
    setattr(other, kind, True)
    (one,) = flow_counts("cache", "f", [admin_pb2.AuditReply(ranges=[range_("cache/db1", "f", 1, 5), other])])
    expected = [between(*offsets) for offsets in redelivered]
    assert one.ranges == {COUNTED: [between(1, 5)], PARTIAL: [], REDELIVERED: expected}


@pytest.mark.parametrize(
    ("begin", "end", "lacking"),
    [
        (1, 2, []),
        (0, 2, [0, FIRST - 1, FIRST]),  # the archive let the oldest go
        (1, 5, [0, FIRST + 3, FIRST + 4]),  # it is behind
    ],
)
def test_windows_that_the_archive_may_not_hold_whole(begin: int, end: int, lacking: list[int]) -> None:
    first, last = marker_at(1), marker_at(2, at_us=marker_at(1).committed_at_us + 3 * US)
    manifest = Manifest("orders", "db1", 1, 1, first, last, whole=True)
    lacks = _lacking(manifest, [(marker_at(begin).order, marker_at(end).order)], timeless=True)
    assert [window for window in (0, *range(FIRST - 1, FIRST + 5)) if lacks(window)] == lacking


def test_of_updates_without_a_time_nothing_is_known_where_not_every_file_is_read() -> None:
    manifest = Manifest("orders", "db1", 1, 1, marker_at(1), marker_at(2), whole=True)
    assert _lacking(manifest, [], timeless=False)(0)


def test_windows_and_findings_as_parquet(tmp_path: Path) -> None:
    window = AuditWindow("cache/db1", 7, 3, 2, 2, 0, 0, 1, 0, 0, 0, "complete", 5.0)
    finding = AuditFinding("lost", "cache/db1", 7, 1, "s:9:0")
    write_parquet(Audit((window,), (finding,), (), ()), str(tmp_path / "audit.parquet"))
    (row,) = pq.read_table(tmp_path / "audit.parquet").to_pylist()
    assert (row["begin_s"], row["lost"], row["findings"]) == (4200, 1, ["1 lost: s:9:0"])
    assert not Audit((window,), (finding,), (), ()).whole
