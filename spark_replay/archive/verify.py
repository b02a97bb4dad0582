"""Verifies an archive: every manifest, the footers of its files and, if requested, every byte and row.

Files that no manifest names are not a problem: a writer left them when it died, or retention will delete them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.arrays import count_values
from spark_replay.archive.columns import position_of
from spark_replay.archive.coverage import chain_problems
from spark_replay.archive.layout import data_folder
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.reader import DataFile, after, upto
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import ArchiveError
from wormhole.wire.tally import Tally, tally_rows, total

__all__ = ["FileProblem", "VerifyReport", "verify"]


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One problem. ``file``: the name of the data file; empty if it is not the problem of a file."""

    shard: str
    file: str
    text: str


@dataclass(slots=True)
class VerifyReport:
    """The extent and the result of a verification. ``rows``: rows that were read, or counted in footers or manifests.
    ``unnamed``: files that no manifest names.
    """

    shards: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    unnamed: int = 0
    problems: list[FileProblem] = field(default_factory=list)


def verify(
    store: ArchiveStore,
    shards: Sequence[str] = (),
    deep: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
    *,
    quick: bool = False,
) -> VerifyReport:
    """Verify ``shards`` (empty: all). ``on_progress`` is called with the shard, its verified files and all its files.
    ``quick``: open no data file, and compare only names and sizes.

    At any time one manifest and one row group are in memory. Raises :class:`~wormhole.model.errors.UsageError` for a
    shard that is not archived, and :class:`~wormhole.model.errors.ArchiveUnavailable`. All other problems are in the
    report.
    """
    report = VerifyReport()
    for shard in store.chosen(shards):
        _verify_shard(store, shard, deep, quick, report, on_progress)
    return report


def _verify_shard(
    store: ArchiveStore,
    shard: str,
    deep: bool,
    quick: bool,
    report: VerifyReport,
    on_progress: Callable[[str, int, int], None] | None,
) -> None:
    report.shards += 1
    try:
        manifest = store.read(shard)
        lying = {one.name: one.bytes for one in store.data_files(shard)}
    except ArchiveError as error:
        report.problems.append(FileProblem(shard, "", str(error)))
        return
    if manifest is None:
        return
    report.problems += [FileProblem(shard, "", text) for text in chain_problems(manifest)]
    report.unnamed += len(lying.keys() - {entry.name for entry in manifest.files})
    last = b""
    for number, entry in enumerate(manifest.files):
        if on_progress is not None:
            on_progress(shard, number, len(manifest.files))
        report.files += 1
        report.bytes += entry.bytes
        if entry.name not in lying:
            problems = [f"is not there: {store.storage.path(data_folder(shard))} lacks it"]
        elif lying[entry.name] != entry.bytes:
            problems = [f"has {lying[entry.name]:,} bytes, the manifest records {entry.bytes:,}"]
        elif quick:
            problems = []
            report.rows += entry.rows
        else:
            try:
                path = store.data_path(shard, entry.name)
                with DataFile(store.open_data(shard, entry.name), path, entry) as file:
                    if deep:
                        file.check()
                    report.rows += file.rows
                    problems = _against_footer(manifest, entry, file)
                    if not problems:
                        rows = _Rows(entry, last)
                        problems = rows.every(file) if deep else rows.bounds(file)
                        last = rows.last
            except ArchiveError as error:
                problems = [error.message]
            except (ValueError, OverflowError, pa.ArrowException) as error:
                problems = [f"cannot be read: {error}"]
        report.problems += [FileProblem(shard, entry.name, text) for text in problems]


def _against_footer(manifest: Manifest, entry: FileEntry, file: DataFile) -> list[str]:
    footer = file.footer
    if (footer.dataset, footer.shard) != (manifest.dataset, manifest.shard):
        return [f"is of dataset {footer.dataset}, shard {footer.shard}"]
    problems = []
    if footer.begin.order != entry.begin.order:
        problems.append(f"begins at {footer.begin.order}, the manifest records {entry.begin.order}")
    # When a log continues without updates for the shard, only the manifest is extended.
    if footer.end.order > entry.end.order:
        problems.append(f"ends at {footer.end.order}, the manifest records {entry.end.order}")
    if file.rows != entry.rows:
        problems.append(f"has {file.rows:,} rows, the manifest records {entry.rows:,}")
    if sum(entry.ops.values()) != entry.rows or sum(entry.tables.values()) != entry.rows:
        problems.append(f"the manifest's counts by operation and by table do not make {entry.rows:,} rows")
    orders = [marker.order for marker in footer.markers]
    begin = footer.begin.order
    # A file that has only rows that a backfill read at its beginning also ends there.
    rising = not orders or orders[0] > begin or orders == [begin]
    if orders != sorted(set(orders)) or not rising or orders[-1:] not in ([], [footer.end.order]):
        problems.append("its datamarkers do not ascend to its end")
    return problems


class _Rows:
    """Compares the rows of one file with its entry in the manifest.

    ``last``: the place of the last row of the previous files, then of this one.
    """

    def __init__(self, entry: FileEntry, last: bytes) -> None:
        self._entry = entry
        # A row of the previous or the next file is outside these bounds.
        self.last = max(last, after(entry.begin))
        self._until = upto(entry.end)

    def bounds(self, file: DataFile) -> list[str]:
        """The problems that the footer's statistics show."""
        for least, greatest in file.spans():
            if problem := self._out_of_order(least, greatest):
                return [problem]
            self.last = greatest
        return []

    def _out_of_order(self, least: bytes, greatest: bytes) -> str:
        if least <= self.last:
            return (
                f"overlap: its rows from {_text(least)} do not come after {_text(self.last)}, where the rows before end"
            )
        if greatest > self._until:
            return f"overlap: its rows go up to {_text(greatest)}, behind its end at {self._entry.end.order}"
        return ""

    def every(self, file: DataFile) -> list[str]:
        """The problems that reading every row shows."""
        ops: Counter[str] = Counter()
        tables: Counter[str] = Counter()
        key_changes = partial = rows = 0
        times: list[int] = []
        schemas: set[int] = set()
        tally = Tally()
        for batch in file.batches():
            places = batch.column("place")
            ascending = pc.all(pc.less(places[:-1], places[1:])).as_py()
            if ascending is False:
                return ["its rows do not ascend by place"]
            if problem := self._out_of_order(places[0].as_py(), places[-1].as_py()):
                return [problem]
            self.last = places[-1].as_py()
            rows += batch.num_rows
            count_values(ops, batch.column("op"))
            count_values(tables, batch.column("table"))
            key_changes += batch.num_rows - batch.column("old_key").null_count
            partial += pc.sum(batch.column("partial")).as_py()
            schemas.update(number % 2**64 for number in pc.unique(batch.column("schema_id")).to_pylist())
            at = batch.column("committed_at").cast(pa.int64())
            times += [one for one in pc.min_max(at).as_py().values() if one]
            sources = batch.column("tx_source").to_pylist()
            numbers, indexes = batch.column("tx_number").to_pylist(), batch.column("tx_index").to_pylist()
            tally = tally.plus(total(tally_rows(sources, numbers, indexes, at.to_pylist())))
        entry = self._entry
        found = {
            "rows": (rows, entry.rows),
            "rows by operation": (dict(ops), dict(entry.ops)),
            "rows by table": (dict(tables), dict(entry.tables)),
            "changed keys": (key_changes, entry.key_changes),
            "rows that lack columns": (partial, entry.partial),
            "first commit time": (min(times, default=0), entry.first_us),
            "last commit time": (max(times, default=0), entry.last_us),
            "checksum": (tally.hash, entry.hash),
        }
        problems = [f"{name}: {got}, the manifest records {said}" for name, (got, said) in found.items() if got != said]
        if unknown := sorted(schemas - file.footer.schemas.keys()):
            problems.append(f"its footer lacks schema {unknown[0]:016x}, which rows refer to")
        return problems


def _text(place: bytes) -> str:
    return f"{position_of(place)}+{int.from_bytes(place[-4:], 'big')}"
