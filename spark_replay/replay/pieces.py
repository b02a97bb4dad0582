"""The pieces that a task pushes, made from archive rows: bodies for the wire, and the offers after them.

All code here works on runs of a few hundred KiB, never on single updates. It runs in a thread beside the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.ranges import files_between, holding
from spark_replay.archive.reader import open_file, segments_of
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay.delivery import Offer, SentPiece
from wormhole.filters import Filter, Projection, RunView
from wormhole.formats import FormatSpec, ValueFormats, open_formats
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, ReplayError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema
from wormhole.model.segment import Run, Segment
from wormhole.wire.body import Body, build_body

__all__ = ["Formats", "Pass", "Selector", "is_read", "log_pieces"]

_BODY_BYTES: Final = 256 << 10
_DUE_BYTES: Final = 64 << 20
"""Bytes of rows of a pass after which an offer is due. Without this limit, a filter that drops nearly all rows would
delay the next offer for a long time, and the rows would stay in memory until then.
"""


@dataclass(frozen=True, slots=True)
class Formats:
    """The value formats of a dataset, as they are sent to the executors. Descriptor sets must have the same paths
    there.
    """

    default: FormatSpec | None = None
    tables: Mapping[str, FormatSpec] | None = None

    def open(self) -> ValueFormats:
        """Open the formats. Raises :class:`~wormhole.model.errors.ConfigError`."""
        return open_formats(self.default, self.tables or {})


class Selector:
    """The application's filter and ``projection``, and the filter of this replay (``where``, as text; empty: none).

    ``where`` leaves updates out, and does not change the others. Only the application's own filter decides whether a
    row entered or left. Raises :class:`~wormhole.model.errors.FilterError`.
    """

    def __init__(
        self,
        application: str,
        where: str,
        formats: ValueFormats,
        projection: Projection | None = None,
        *,
        halts: bool = False,
    ) -> None:
        self._application = Filter.parse(application or None, formats=formats, projection=projection)
        self._where = Filter.parse(where or None, formats=formats)
        self._halts = halts
        self._all = self._application.matches_all and self._where.matches_all

    @property
    def application(self) -> Filter:
        """The application's filter."""
        return self._application

    def body(self, run: Run, incarnation: int) -> Body | None:
        """The run's updates that both filters select; ``None`` if there are none.

        Raises :class:`~wormhole.model.errors.DecodeError` for updates that cannot be projected.
        """
        projection = self._application.projection
        counted = not is_read(run)
        if self._all:
            return build_body(projection.project(run, None), incarnation, counted=counted)
        view = RunView(run)
        found = self._application.select(view)
        kept, bad = found.kept, found.bad
        wanted = self._where.keep(view)
        if wanted is not None:
            chosen = set(wanted)
            kept = wanted if kept is None else [i for i in kept if i in chosen]
            bad = [one for one in bad if one[0] in chosen]
        run = projection.project(run, kept)
        body = build_body(run, incarnation, kept, marks=found.marks, instead=found.key_only, bad=bad, counted=counted)
        if body is not None and body.bad and self._halts:
            first = body.bad[0]
            raise ReplayError(
                (
                    f"update {first.id} at {first.position}: the value in {first.table} is not what value_format says: "
                    f"{first.why}"
                ),
                hint='declare the format that it has, or set on_bad_value = "deliver"',
                code="value-undecodable",
            )
        return body


def log_pieces(
    store: ArchiveStore, shard: str, start: Datamarker, until: Datamarker, selector: Selector
) -> Generator[SentPiece, None, None]:
    """Every update between two datamarkers, in order, as the log had them.

    During a long replay files may be deleted after they were merged into others, or dropped by retention. If a file is
    missing, delivery continues at the same place with the files of the newest manifest.

    Raises :class:`~wormhole.model.errors.ReplayError` if the archive does not, or no longer, hold the updates after the
    place that was reached; :class:`~wormhole.model.errors.ArchiveError`, with the range, for a file that is damaged, or
    missing although the newest manifest names it; and :class:`~wormhole.model.errors.ArchiveUnavailable` for a file
    that was deleted while it was read.
    """
    at, missing = start, ""
    while at.order < until.order:
        manifest = holding(store.read(shard), shard, at, until)
        gaps = _gaps(manifest, at)
        for entry in files_between(manifest, at, until):
            gap = None
            while gaps and gaps[0][1].order <= entry.begin.order:
                if gap is not None:
                    yield SentPiece(None, gap[1].order, _given(gap[1]), gap)
                    at = gap[1]
                gap = gaps.popleft()
            with _about(shard, entry):
                try:
                    file = open_file(store, shard, entry)
                except ArchiveError as error:
                    if not _is_missing(error):
                        raise
                    if entry.name == missing:
                        raise _lacks(store, shard, entry) from error
                    missing = entry.name
                    break
                with file:
                    for segment in file.segments(at, until, limit=_BODY_BYTES):
                        yield _piece(segment, shard, selector, _given(segment.marker), gap)
                        gap = None
            at = entry.end
        else:
            for gap in gaps:
                if gap[1].order <= until.order:
                    yield SentPiece(None, gap[1].order, _given(gap[1]), gap)
            return


@contextmanager
def _about(shard: str, entry: FileEntry) -> Iterator[None]:
    """Add the range that a file covers to errors of the file."""
    try:
        yield
    except ArchiveError as error:
        if _is_missing(error):  # an object store is read piece by piece, so a file may vanish between reads
            raise ArchiveUnavailable(
                f"{entry.name} was deleted while it was read",
                shard=shard,
                hint="the next attempt reads the files that replaced it",
            ) from error
        raise error.at(shard=shard, position=f"{entry.begin.order} to {entry.end.order}") from error.__cause__


def _is_missing(error: ArchiveError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _lacks(store: ArchiveStore, shard: str, entry: FileEntry) -> ArchiveError:
    return ArchiveError(
        f"{store.data_path(shard, entry.name)} is not there, and the newest manifest names it",
        hint="`wormholectl archive verify` shows every file that is missing; restore it from a backup",
    )


def _given(marker: Datamarker | None) -> Offer | None:
    """The offer at a datamarker of the archive. The archiver's own backfill has no meaning for another flow."""
    if marker is None:
        return None
    marker = replace(marker, backfill=b"")
    return Offer(marker, marker)


def _gaps(manifest: Manifest, start: Datamarker) -> deque[tuple[LogGap, Datamarker]]:
    """The losses of the archive itself after ``start``, each with the datamarker at which the archive continues."""
    return deque(
        (
            # Only logs with numbered places have such gaps. A set of ids would also name all updates delivered before.
            LogGap(
                LossKind.PURGED,
                "",
                loss.resume.delivered if loss.resume.delivered.isdecimal() else "",
                f"the archive lacks it too: {loss.message}",
                loss.resume.delivered,
            ),
            loss.resume,
        )
        for loss in manifest.losses
        if loss.resume.order > start.order
    )


def _piece(
    segment: Segment, shard: str, selector: Selector, offer: Offer | None, gap: tuple[LogGap, Datamarker] | None = None
) -> SentPiece:
    run = segment.runs.get(shard)
    body = None if run is None else selector.body(run, segment.end.incarnation)
    return SentPiece(body, segment.begin, offer, gap)


def is_read(run: Run) -> bool:
    """Whether a run of the archive has rows that a backfill read. Such a run has no other rows."""
    return is_read_source(run.sources[run.tx_source[0] if run.tx_source else 0])


class Pass:
    """One row per key, ascending by place, from batches that are expensive to compute.

    Batches that are not stored yet are kept, so that the next connection can send them again. They are computed anew
    only if their computation failed, or if the application has less than before. Batches from an
    iterator cannot be computed anew, so the pass then ends with an error.

    The flow's datamarker must not move within the pass, because the rows are not a prefix of the log. So the offers
    have the flow's own datamarker, with a growing time so that acknowledgements differ. ``progress`` is the
    place that was reached.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        shard: str,
        schema_of: Callable[[int], Schema],
        marker: Datamarker,
    ) -> None:
        self._batches = batches
        self._coming: Iterator[pa.RecordBatch] | None = None
        self._kept: deque[tuple[bytes, pa.RecordBatch]] = deque()
        self._failed = False
        self._passed_over = b""  # rows up to here were not kept, because the application already had them
        self._shard = shard
        self._schema_of = schema_of
        self._marker = marker
        self._offers = 0
        self._unasked = 0  # bytes of rows since the last offer that was due

    def stored(self, progress: bytes) -> None:
        """Drop the rows up to this place, because they are acknowledged and stored."""
        while self._kept and self._kept[0][0] <= progress:
            self._kept.popleft()

    def pieces(self, progress: bytes, selector: Selector) -> Generator[SentPiece, None, None]:
        """The pieces after ``progress`` that ``selector`` selects. The application's filter may differ between
        connections.
        """
        for last, batch in self._all(progress):
            left = (
                batch
                if not progress
                else batch.filter(pc.greater(batch["place"], pa.scalar(progress, batch["place"].type)))
            )
            begin = self._marker.order
            segments = list(
                segments_of(
                    [left], shard=self._shard, schema_of=self._schema_of, begin=begin, limit=_BODY_BYTES, whole=True
                )
            )
            for number, segment in enumerate(segments):
                offer = self._offer(last, batch.nbytes) if number + 1 == len(segments) else None
                yield _piece(replace(segment, begin=begin), self._shard, selector, offer)

    def _all(self, progress: bytes) -> Iterator[tuple[bytes, pa.RecordBatch]]:
        if self._failed or progress < self._passed_over:
            self._anew()
        kept = tuple(self._kept)  # a copy: another thread may call `stored` for the previous connection
        yield from (one for one in kept if one[0] > progress)
        while (batch := self._next()) is not None:
            if not batch.num_rows:
                continue
            last: bytes = batch["place"][batch.num_rows - 1].as_py()
            if last > progress:
                self._kept.append((last, batch))
                yield last, batch
            else:
                self._passed_over = last

    def _next(self) -> pa.RecordBatch | None:
        if self._coming is None:
            self._coming = iter(self._batches)
        try:
            return next(self._coming, None)
        except Exception:
            self._failed = True  # the iterator has ended, as if there were no more rows
            raise

    def _anew(self) -> None:
        """Prepare to compute the batches anew. Raises :class:`~wormhole.model.errors.ReplayError` for an iterator."""
        if isinstance(self._batches, Iterator):
            raise ReplayError(
                "the rows of this pass cannot be read again, and some are needed",
                shard=self._shard,
                hint="resume the replay with --resume",
            )
        self._kept.clear()
        self._coming, self._failed, self._passed_over = None, False, b""

    def _offer(self, progress: bytes, size: int) -> Offer:
        self._offers += 1
        self._unasked += size
        due = self._unasked >= _DUE_BYTES
        if due:
            self._unasked = 0
        counted = replace(self._marker, committed_at_us=self._marker.committed_at_us + self._offers)
        return Offer(counted, None, progress, due)
