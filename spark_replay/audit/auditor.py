"""One audit: the books of every publisher against the archive, from manifests to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from spark_replay.archive.manifest import Manifest
from spark_replay.audit.archived import Places, Selecting, tally, which
from spark_replay.audit.compare import Finding, Window, compare, found, looked_for
from spark_replay.frames import ShardFiles, within_times
from wormhole.model.errors import UsageError
from wormhole.model.position import LogPosition
from wormhole.wire.markers import position_from_message
from wormhole.wire.tally import WINDOW_S, window_of
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.store import ArchiveStore

__all__ = ["Audit", "Booked", "audit", "booked", "write_parquet"]


@dataclass(frozen=True, slots=True)
class Booked:
    """What one flow's books say under the filter that its application has now. ``partly``: ranges in which a replay
    delivered less than the log has, because it was asked to; ``again``: in which every change was delivered a second
    time; ``unheard``: of which nobody told, see :class:`~spark_replay.audit.archived.Places`.
    """

    flow: str
    windows: Mapping[int, admin_pb2.AuditWindow]
    ranges: tuple[tuple[LogPosition, LogPosition], ...]
    limits: tuple[float, ...]
    partly: tuple[tuple[LogPosition, LogPosition], ...] = ()
    again: tuple[tuple[LogPosition, LogPosition], ...] = ()
    unheard: tuple[tuple[LogPosition, LogPosition], ...] = ()

    @property
    def shard(self) -> str:
        """The flow's shard."""
        return self.flow.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Audit:
    """``unbooked``: flows without books under the present filter; ``unarchived``: flows whose shard the archive does
    not have.
    """

    windows: tuple[Window, ...]
    findings: tuple[Finding, ...]
    unbooked: tuple[str, ...]
    unarchived: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is lost."""
        return not any(one.is_loss for one in self.findings)


def booked(application: str, filter_hash: str, replies: Iterable[admin_pb2.AuditReply]) -> list[Booked]:
    """The books of the application's flows, by flow."""
    windows: dict[str, dict[int, admin_pb2.AuditWindow]] = {}
    ranges: dict[str, list[tuple[LogPosition, LogPosition]]] = {}
    partly: dict[str, list[tuple[LogPosition, LogPosition]]] = {}
    again: dict[str, list[tuple[LogPosition, LogPosition]]] = {}
    unheard: dict[str, list[tuple[LogPosition, LogPosition]]] = {}
    limits: tuple[float, ...] = ()
    for reply in replies:
        limits = tuple(reply.delay_limits_s) or limits
        for range_ in reply.ranges:
            if range_.filter_hash == filter_hash and range_.flow.partition("/")[0] == application:
                into = ranges
                for flag, one in ((range_.partly, partly), (range_.again, again), (range_.unheard, unheard)):
                    into = one if flag else into
                into.setdefault(range_.flow, []).append(
                    (position_from_message(range_.begin), position_from_message(range_.end))
                )
        for window in reply.windows:
            if window.filter_hash == filter_hash and window.flow.partition("/")[0] == application:
                windows.setdefault(window.flow, {})[window.window] = window
    return [
        Booked(
            flow,
            windows.get(flow, {}),
            tuple(ranges.get(flow, ())),
            limits,
            tuple(partly.get(flow, ())),
            tuple(again.get(flow, ())),
            tuple(unheard.get(flow, ())),
        )
        for flow in sorted({*ranges, *partly})
    ]


def audit(
    spark: SparkSession,
    store: ArchiveStore,
    flows: Sequence[str],
    books: Sequence[Booked],
    selecting: Selecting,
    *,
    since_s: float,
    now_s: float,
) -> Audit:
    """Compare. ``flows``: all of the application; ``since_s``: only windows that end after it, seconds since 1970.

    Raises :class:`~wormhole.model.errors.UsageError` where there is nothing to compare,
    :class:`~wormhole.model.errors.ArchiveError` for a damaged file.
    """
    manifests = {one.shard: store.read(one.shard) for one in books}
    known = {shard: manifest for shard, manifest in manifests.items() if manifest is not None}
    mine = [one for one in books if one.shard in known]
    if not mine:
        raise UsageError(
            "there is nothing to compare: no flow has both books and an archive",
            hint=(
                "books begin when a publisher of this release delivers; `wormholectl archive show` tells what is "
                "archived"
            ),
        )
    first = window_of(round(since_s * 1e6))
    begin_us = first * WINDOW_S * 1_000_000  # whole windows, or their beginning would seem not to be archived
    chosen = [ShardFiles(one.shard, within_times(known[one.shard].files, begin_us)) for one in mine]
    partly = {one.shard for one in chosen if len(one.files) < len(known[one.shard].files)}
    places = {one.shard: Places.of(one.ranges, one.partly, one.again, one.unheard) for one in mine}
    archived = tally(spark, store, chosen, selecting, places)
    windows: list[Window] = []
    for one in mine:
        lacks = _lacking(known[one.shard], one.ranges, timeless=one.shard not in partly)
        windows += (
            window
            for window in compare(
                one.flow, archived.get(one.shard, {}), one.windows, one.limits, lacks=lacks, now_s=now_s
            )
            if window.window >= first or window.window == 0
        )
    ids = which(spark, store, chosen, selecting, looked_for(windows))
    booked_flows = {one.flow for one in books}
    return Audit(
        tuple(windows),
        tuple(found(windows, ids)),
        tuple(sorted(flow for flow in flows if flow not in booked_flows)),
        tuple(sorted(one.flow for one in books if one.shard not in known)),
    )


def _lacking(
    manifest: Manifest, ranges: Sequence[tuple[LogPosition, LogPosition]], *, timeless: bool
) -> Callable[[int], bool]:
    """Of which windows the archive may not have everything that the books have: it is behind, or let the oldest files
    go.

    ``timeless``: whether all was read that has updates without a time.
    """
    begin, end = manifest.begin, manifest.end
    late = any(last > end.order for _, last in ranges)
    early = any(first < begin.order for first, _ in ranges)
    first_whole = window_of(begin.committed_at_us) + 1 if begin.committed_at_us else 1
    behind_from = window_of(end.committed_at_us)

    def lacks(window: int) -> bool:
        if window == 0 and not timeless:
            return True
        return (late and (window >= behind_from or window == 0)) or (early and window < first_whole)

    return lacks


def write_parquet(audited: Audit, file: str) -> None:
    """One row per flow and window, with what was found there. Raises ``OSError``."""
    findings: dict[tuple[str, int], list[str]] = {}
    for one in audited.findings:
        findings.setdefault((one.flow, one.window), []).append(
            f"{one.updates} {one.kind}: {one.update or one.where}".rstrip(": ")
        )
    rows = [
        {
            "flow": one.flow,
            "begin_s": one.window * WINDOW_S,
            "archived": one.archived,
            "delivered": one.delivered,
            "processed": one.processed,
            "set_aside": one.set_aside,
            "duplicates": one.duplicates,
            "possible_duplicates": one.possible,
            "lost": one.lost + one.unprocessed,
            "unaudited": one.unaudited,
            "replayed": one.replayed,
            "pending": one.pending,
            "state": one.state,
            "complete_s": one.complete_s,
            "findings": findings.get((one.flow, one.window), []),
        }
        for one in audited.windows
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), file)


_SCHEMA = pa.schema(
    [
        ("flow", pa.string()),
        ("begin_s", pa.int64()),
        *((name, pa.int64()) for name in ("archived", "delivered", "processed", "set_aside", "duplicates", "lost")),
        ("unaudited", pa.int64()),
        ("replayed", pa.int64()),
        ("pending", pa.int64()),
        ("possible_duplicates", pa.int64()),
        ("state", pa.string()),
        ("complete_s", pa.float64()),
        ("findings", pa.list_(pa.string())),
    ]
)
