"""One audit: compares the delivery counts of all publishers with the archive, from manifests to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from spark_replay.archive.manifest import Manifest
from spark_replay.audit.archived import AuditPlaces, Selecting, tally, which
from spark_replay.audit.compare import AuditFinding, AuditWindow, compare, findings, single_hashes
from spark_replay.frames import ShardFiles, within_times
from wormhole.audit.delivery_counts import Range, RangeKind
from wormhole.model.errors import UsageError
from wormhole.wire.markers import position_from_message
from wormhole.wire.tally import WINDOW_S, window_of
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_replay.archive.store import ArchiveStore

__all__ = ["Audit", "FlowCounts", "audit", "flow_counts", "write_parquet"]


@dataclass(slots=True)
class FlowCounts:
    """The delivery counts of one flow under the filter that its application has now. ``limits``: the limits of their
    delays.
    """

    flow: str
    limits: tuple[float, ...] = ()
    windows: dict[int, admin_pb2.AuditWindow] = field(default_factory=dict)
    ranges: dict[RangeKind, list[Range]] = field(default_factory=lambda: {kind: [] for kind in RangeKind})

    @property
    def shard(self) -> str:
        """The flow's shard."""
        return self.flow.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Audit:
    """``uncounted``: flows without delivery counts under the present filter; ``unarchived``: flows whose shard the
    archive does not have.
    """

    windows: tuple[AuditWindow, ...]
    findings: tuple[AuditFinding, ...]
    uncounted: tuple[str, ...]
    unarchived: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is lost."""
        return not any(one.is_loss for one in self.findings)


def flow_counts(application: str, filter_hash: str, replies: Iterable[admin_pb2.AuditReply]) -> list[FlowCounts]:
    """The delivery counts of the application's flows, by flow."""
    found: dict[str, FlowCounts] = {}

    def selected(one: admin_pb2.AuditRange | admin_pb2.AuditWindow) -> bool:
        return one.filter_hash == filter_hash and one.flow.partition("/")[0] == application

    for reply in replies:
        for range_ in filter(selected, reply.ranges):
            kind = RangeKind.REDELIVERED if range_.again else RangeKind.PARTIAL if range_.partly else RangeKind.COUNTED
            if not range_.unheard:  # only publishers of an earlier release send `unheard`
                ranges = found.setdefault(range_.flow, FlowCounts(range_.flow, tuple(reply.delay_limits_s))).ranges
                ranges[kind].append((position_from_message(range_.begin), position_from_message(range_.end)))
        for window in filter(selected, reply.windows):
            if window.flow in found:
                found[window.flow].windows[window.window] = window
    counted = [one for one in found.values() if one.ranges[RangeKind.COUNTED] or one.ranges[RangeKind.PARTIAL]]
    return sorted(counted, key=lambda one: one.flow)


def audit(
    spark: SparkSession,
    store: ArchiveStore,
    flows: Sequence[str],
    counts: Sequence[FlowCounts],
    selecting: Selecting,
    *,
    since_s: float,
    now_s: float,
) -> Audit:
    """Audit an application. ``flows``: all of its flows. ``since_s``: only windows that end later, seconds since 1970.

    Raises :class:`~wormhole.model.errors.UsageError` if there is nothing to compare, and
    :class:`~wormhole.model.errors.ArchiveError` for a damaged file.
    """
    manifests = {one.shard: store.read(one.shard) for one in counts}
    known = {shard: manifest for shard, manifest in manifests.items() if manifest is not None}
    mine = [one for one in counts if one.shard in known]
    if not mine:
        raise UsageError(
            "there is nothing to compare: no flow has both delivery counts and an archive",
            hint="publishers count what they deliver; `wormholectl archive show` lists what is archived",
        )
    first = window_of(round(since_s * 1e6))
    begin_us = first * WINDOW_S * 1_000_000  # whole windows; else their beginning would seem not to be archived
    chosen = [ShardFiles(one.shard, within_times(known[one.shard].files, begin_us)) for one in mine]
    cut = {one.shard for one in chosen if len(one.files) < len(known[one.shard].files)}
    places = {one.shard: AuditPlaces.of(one.ranges) for one in mine}
    archived = tally(spark, store, chosen, selecting, places)
    windows: list[AuditWindow] = []
    for one in mine:
        lacks = _lacking(known[one.shard], one.ranges[RangeKind.COUNTED], timeless=one.shard not in cut)
        all_windows = compare(one.flow, archived.get(one.shard, {}), one.windows, one.limits, lacks=lacks, now_s=now_s)
        windows += [window for window in all_windows if window.window >= first or window.window == 0]
    ids = which(spark, store, chosen, selecting, single_hashes(windows))
    counted = {one.flow for one in counts}
    return Audit(
        tuple(windows),
        tuple(findings(windows, ids)),
        tuple(sorted(flow for flow in flows if flow not in counted)),
        tuple(sorted(one.flow for one in counts if one.shard not in known)),
    )


def _lacking(manifest: Manifest, ranges: Sequence[Range], *, timeless: bool) -> Callable[[int], bool]:
    """A test whether the archive may lack delivered updates of a window: it is behind, or lost its oldest files.

    ``timeless``: whether all files with updates without a time were read.
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
    texts: dict[tuple[str, int], list[str]] = {}
    for one in audited.findings:
        texts.setdefault((one.flow, one.window), []).append(
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
            "lost": one.lost + one.unprocessed,
            "unaudited": one.unaudited,
            "replayed": one.replayed,
            "pending": one.pending,
            "state": one.state,
            "complete_s": one.complete_s,
            "findings": texts.get((one.flow, one.window), []),
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
        ("state", pa.string()),
        ("complete_s", pa.float64()),
        ("findings", pa.list_(pa.string())),
    ]
)
