"""Writes one shard into the archive: rows in memory, a file that is being written, and its commit. Blocks.

The order of a commit::

    rows -> row groups of the open file -> footer -> file complete and durable
    -> manifest by compare-and-set -> (acknowledgement)

A crash between two steps loses nothing: a file that no manifest names is garbage, and the log still has its updates.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from spark_replay.archive.columns import position_of, read_number
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from spark_replay.archive.reader import open_file
from spark_replay.archive.rows import NO_READS, ReadsAt, Rows
from spark_replay.archive.storage import storage_errors
from spark_replay.archive.store import ArchiveStore, NewFile
from spark_replay.archive.writer import DataFileWriter
from wormhole.model.errors import ArchiveError, EpochRefused
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.reads import is_read_transaction
from wormhole.model.values import Op
from wormhole.wire.update import Update

__all__ = ["ROW_GROUP", "ShardWriter"]

_log = logging.getLogger(__name__)

ROW_GROUP: Final = 8 << 20
"""Bytes of rows in a row group. A reader of one place has to decompress so much. It is small compared with a file."""


class ShardWriter:
    """One shard in one epoch. ``manifest``: the newest one, by which this epoch owns the shard (:meth:`claim`).

    Only the last file of the manifest is kept in memory, because there may be tens of thousands.
    """

    def __init__(self, store: ArchiveStore, manifest: Manifest) -> None:
        self._store = store
        self._rows = Rows()
        self._file: NewFile | None = None
        self._writer: DataFileWriter | None = None
        self._markers: list[Datamarker] = []
        self._leaving = 0
        self._rows.reads = _reads_at_end(store, manifest)
        self.manifest = _newest(manifest)
        self.written = 0
        """Bytes of rows in row groups of the open file, as they were in memory."""
        self.dirty = False
        """Whether rows came since the last datamarker."""

    @classmethod
    def claim(
        cls, store: ArchiveStore, shard: str, epoch: int, marker: Datamarker, *, acknowledged: bool = False
    ) -> ShardWriter:
        """Take the shard for ``epoch``: from now on no older archiver can commit. ``marker``: where the archive begins,
        if the shard has none yet.

        ``acknowledged``: everything before ``marker`` is acknowledged and does not come again, so an archive that ends
        before ``marker`` has a hole. Raises :class:`~wormhole.model.errors.ArchiveError` for a hole,
        :class:`~wormhole.model.errors.EpochRefused` when a newer archiver has the shard, and what the store raises.
        """

        def owned(present: Manifest | None) -> Manifest:
            if acknowledged and (present is None or present.end.order < marker.order):
                raise _set_back(store, shard, present, marker)
            if present is None:
                return Manifest(store.dataset, shard, 1, epoch, marker, marker, _is_beginning(marker), copy=store.copy)
            return present if present.epoch == epoch else present.claimed(epoch)

        return cls(store, store.change_newest(shard, owned))

    @property
    def shard(self) -> str:
        """Its name."""
        return self.manifest.shard

    @property
    def memory(self) -> int:
        """About how many bytes of memory its rows take, including rows that are just being written."""
        return self._rows.size + self._leaving

    @property
    def size(self) -> int:
        """Bytes of rows that are not committed, as they are in memory."""
        return self._rows.size + self.written

    @property
    def last_marker(self) -> Datamarker | None:
        """The newest datamarker since the last commit."""
        return self._markers[-1] if self._markers else None

    def add(self, updates: Sequence[Update]) -> None:
        """Updates of one batch, in order.

        Updates that the archive holds already are passed over: they were committed, and the answer was lost. Rows that
        a backfill read at the end of the archive are added: their place does not show whether the archive holds them.
        Rows that are in the archive twice have equal ids and equal values.
        """
        end = self.manifest.end.order
        if updates and _held(updates[0], end):
            kept = [update for update in updates if not _held(update, end)]
            _log.warning("shard %s: %d updates came again that are archived", self.shard, len(updates) - len(kept))
            updates = kept
        if updates:
            self._rows.add(updates)
            self.dirty = True

    def mark(self, marker: Datamarker) -> None:
        """A datamarker of the publisher after all that was added.

        A datamarker at the end of the archive or before it came again and is ignored. One at the end counts if a
        backfill got further there.
        """
        self.dirty = False
        end = self.manifest.end
        if marker.order > end.order or (marker.order == end.order and marker != end):
            self._markers.append(marker)

    def spill(self) -> None:
        """Write the rows in memory as a row group of the open file."""
        if not len(self._rows):
            return
        writer = self._opened()
        assert self._file is not None
        size, too_large = self._rows.size, self._rows.too_large
        self._leaving = size
        try:
            with storage_errors("write", self._file.path):
                writer.write(self._rows.take(), self._rows.schemas, too_large)
        finally:
            self._leaving = 0
        self.written += size

    def commit(self, end: Datamarker) -> FileEntry | None:
        """Make everything that was added, which is all before ``end``, part of the archive.

        Returns the new file; ``None`` if none was needed. Raises :class:`~wormhole.model.errors.EpochRefused` when a
        newer archiver has the shard, and what the store raises. After an error of the store the commit may have been
        made all the same; a new :meth:`claim` shows it.
        """
        epoch = self.manifest.epoch
        if self._writer is None and not len(self._rows):
            self._markers.clear()
            if end.order < self.manifest.end.order or end == self.manifest.end:
                return None  # what came was archived before, and came again
            self.manifest = _newest(
                self._store.change_newest(self.shard, lambda present: _reaching(self._mine(present), end, epoch))
            )
            if self.manifest.end.order == end.order:
                return None
        self.spill()
        writer = self._opened()
        for marker in self._markers:
            writer.mark(marker)
        self._markers.clear()
        file, self._file, self._writer = self._file, None, None
        assert file is not None
        self.written = 0
        try:
            with storage_errors("write", file.path):
                entry = writer.finish(end)
            file.close()
        except BaseException:
            file.abort()
            raise
        self.manifest = _newest(
            self._store.change_newest(self.shard, lambda present: self._mine(present).appended(entry, epoch))
        )
        return entry

    def accept(self, loss: KnownLoss) -> None:
        """Continue after a range that the log lost. Updates since the last commit are dropped."""
        self.abandon()
        epoch = self.manifest.epoch
        self.manifest = _newest(
            self._store.change_newest(self.shard, lambda present: self._mine(present).gap_accepted(loss, epoch))
        )

    def abandon(self) -> None:
        """Drop what is not committed; it will be delivered again. Raises nothing."""
        file, self._file, self._writer = self._file, None, None
        self._rows, self._markers = Rows(self._rows.reads), []
        self.written, self.dirty = 0, False
        if file is not None:
            file.abort()

    def _mine(self, present: Manifest | None) -> Manifest:
        if present is None or present.end.order < self.manifest.end.order:
            raise _set_back(self._store, self.shard, present, self.manifest.end)
        if present.epoch > self.manifest.epoch:
            raise EpochRefused(
                (
                    f"another archiver writes {self.shard} in epoch {present.epoch}, this one had it in "
                    f"{self.manifest.epoch}"
                ),
                shard=self.shard,
                hint="nothing: the other one goes on from what is archived",
            )
        if present.end.order > self.manifest.end.order:
            raise ArchiveError(
                (
                    f"{self.shard} was archived from {self.manifest.end.order} to {present.end.order} meanwhile, in "
                    f"the same epoch {present.epoch}"
                ),
                shard=self.shard,
                hint=(
                    "nothing is lost; see which other archivers run: if a publisher's state was restored from a "
                    "backup, epochs came twice"
                ),
                code="archive-conflict",
            )
        return present

    def _opened(self) -> DataFileWriter:
        if self._writer is None:
            manifest = self.manifest
            name = f"{manifest.epoch:08d}-{manifest.version:08d}-{secrets.token_hex(4)}.parquet"
            self._file = self._store.create_data(self.shard, name)
            self._writer = DataFileWriter(
                self._file.sink,
                name,
                dataset=manifest.dataset,
                shard=manifest.shard,
                epoch=manifest.epoch,
                begin=manifest.end,
            )
        return self._writer


def _reads_at_end(store: ArchiveStore, manifest: Manifest) -> ReadsAt:
    """The number of rows of backfills that the archive has at the place where it ends."""
    last = manifest.files[-1] if manifest.files else None
    if last is None or not last.ops.get(Op.READ.value):
        return NO_READS
    with open_file(store, manifest.shard, last) as file:
        place = max((greatest for _, greatest in file.spans()), default=b"")
    number = read_number(place) if place else None
    return NO_READS if number is None else ReadsAt(position_of(place), number + 1)


def _newest(manifest: Manifest) -> Manifest:
    return replace(manifest, files=manifest.files[-1:], older=())


def _reaching(manifest: Manifest, end: Datamarker, epoch: int) -> Manifest:
    """The manifest after log without updates: the range of its last file ends at ``end``, and no file is added.

    The manifest stays as it is if retention removed the last file, or if a loss follows that file.
    """
    if not manifest.files or manifest.files[-1].end.order != manifest.end.order:
        return manifest
    return manifest.extended(end, epoch)


def _set_back(store: ArchiveStore, shard: str, present: Manifest | None, known: Datamarker) -> ArchiveError:
    if present is None:
        return ArchiveError(
            f"the manifests of {shard} are gone from {store.to}; it was archived up to {known.order}",
            shard=shard,
            hint=(
                "see whether the disk is mounted, and whether something else removes files there; put them back, or "
                "start the archiver again: it then begins anew"
            ),
            code="archive-damaged",
        )
    return ArchiveError(
        (
            f"the archive of {shard} ends at {present.end.order}, and had been committed up to {known.order}: its "
            "manifests were set back"
        ),
        shard=shard,
        hint=(
            "put the newer manifests back; or start the archiver again: it goes on where the archive ends now, if "
            "the log still has that, and else says what is lost"
        ),
        code="archive-damaged",
    )


def _held(update: Update, end: LogPosition) -> bool:
    """Whether an archive up to ``end`` holds the update.

    An archive ends between transactions. An update of an unfinished transaction has the place where the transaction
    begins. A row that a backfill read has the place of the transaction before it. The archive may hold that transaction
    without the row.
    """
    if update.position != end:
        return update.position < end
    return not update.in_unfinished and not is_read_transaction(update.transaction.id)


def _is_beginning(marker: Datamarker) -> bool:
    """Whether nothing was ever written before the marker.

    A log that numbers its changes counts from 1; one with sets of ids begins with the empty set.
    """
    return marker.delivered == "0" or (not marker.delivered and marker.order.file <= 1)
