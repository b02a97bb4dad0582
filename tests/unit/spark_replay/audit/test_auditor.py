"""From delivery counts and manifests to what is compared. Spark's part stands in the system test."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_replay.archive.manifest import Manifest
from spark_replay.audit.auditor import Audit, _lacking, flow_counts, write_parquet
from spark_replay.audit.compare import AuditFinding, AuditWindow
from tests.support.archives import marker_at
from wormhole.audit.delivery_counts import Range, RangeKind
from wormhole.model.position import LogPosition
from wormhole.wire.tally import window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

US = 600_000_000
WINDOW = window_of(marker_at(1).committed_at_us)
COUNTED, PARTIAL, REDELIVERED = RangeKind


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
        (0, 2, [0, WINDOW - 1, WINDOW]),  # the archive let the oldest go
        (1, 5, [0, WINDOW + 3, WINDOW + 4]),  # it is behind
    ],
)
def test_windows_that_the_archive_may_not_hold_whole(begin: int, end: int, lacking: list[int]) -> None:
    first, last = marker_at(1), marker_at(2, at_us=marker_at(1).committed_at_us + 3 * US)
    manifest = Manifest("orders", "db1", 1, 1, first, last, whole=True)
    lacks = _lacking(manifest, [(marker_at(begin).order, marker_at(end).order)], timeless=True)
    assert [window for window in (0, *range(WINDOW - 1, WINDOW + 5)) if lacks(window)] == lacking


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
