"""Merges small adjacent files into one, so that readers of the archive open fewer files.

::

    plan     choose the files of each shard by its manifest (``groups``, pure)
    merge    one Spark task per group: read the files one after the other, write one, complete and durable
    commit   in the same task: the next manifest names the new file in their place (compare-and-set, repeated if lost)

A crash between two steps does not change the archive: the new file is garbage. After the commit the old files are
garbage. They are not deleted here, because readers may still have them open: ``retention`` deletes them a day later.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from spark_replay.archive.arrays import U64, grouped, joined
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.reader import open_file
from spark_replay.archive.storage import storage_errors
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.writer import DataFileWriter
from wormhole.model.errors import ArchiveError, WormholeError
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TARGET_BYTES", "Group", "Merged", "compact", "groups", "merge", "planned"]

TARGET_BYTES: Final = 128 << 20
"""About the bytes of a merged file. One task of Spark reads so much at a time."""

_ROW_GROUP: Final = 8 << 20
"""Bytes of rows in a row group, as they are in memory; as the archiver writes them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one shard that become one, in order."""

    shard: str
    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(entry.bytes for entry in self.files)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result for a group. ``before`` and ``after``: bytes.

    ``overtaken``: another writer removed some of its files from the manifest first, so nothing was changed. ``failed``:
    nothing was changed, and ``problem`` is the reason.
    """

    shard: str
    state: Literal["merged", "overtaken", "failed"]
    files: int
    before: int
    after: int = 0
    problem: str = ""
    hint: str = ""


def groups(manifest: Manifest, target_bytes: int = TARGET_BYTES) -> Iterator[tuple[FileEntry, ...]]:
    """Groups of files to merge: two or more adjacent ones, each under half of ``target_bytes``, together at most that.

    The newest file is never merged, because its archiver may still move its end. A lost range is a border: no file
    spans it.
    """
    run: list[FileEntry] = []
    size = 0
    for entry in manifest.files[:-1]:
        small = entry.bytes < target_bytes / 2
        adjoins = not run or run[-1].end.order == entry.begin.order
        if run and (not small or not adjoins or size + entry.bytes > target_bytes):
            if len(run) > 1:
                yield tuple(run)
            run, size = [], 0
        if small:
            run.append(entry)
            size += entry.bytes
    if len(run) > 1:
        yield tuple(run)


def planned(store: ArchiveStore, shards: Sequence[str] = (), target_bytes: int = TARGET_BYTES) -> list[Group]:
    """The groups to merge, the largest first. ``shards``: the shards to merge; empty: all.

    Raises :class:`~wormhole.model.errors.UsageError` for a shard of which nothing is archived, and what the store
    raises.
    """
    found = []
    for shard in store.chosen(shards):
        manifest = store.read(shard)
        if manifest is not None:
            found += [Group(shard, files) for files in groups(manifest, target_bytes)]
    return sorted(found, key=lambda group: -group.bytes)


def compact(spark: SparkSession, store: ArchiveStore, chosen: Sequence[Group]) -> list[Merged]:
    """Merge each group in a task of its own. A failure of one does not affect the others."""
    if not chosen:
        return []
    found: list[Merged] = spark.sparkContext.parallelize(chosen, len(chosen)).map(partial(_task, store)).collect()
    return found


def _task(store: ArchiveStore, group: Group) -> Merged:
    try:
        return merge(store, group)
    except WormholeError as error:
        problem = Merged(group.shard, "failed", len(group.files), group.bytes)
        return replace(problem, problem=error.message, hint=error.hint or "")


class _OvertakenError(Exception):
    pass


def merge(store: ArchiveStore, group: Group) -> Merged:
    """Merge one group and commit the result.

    Raises :class:`~wormhole.model.errors.ArchiveError` for files that differ from their entries, and what the store
    raises.
    """
    names = [entry.name for entry in group.files]
    result = Merged(group.shard, "overtaken", len(names), group.bytes)
    tried = False

    def swapped(manifest: Manifest | None, entry: FileEntry) -> Manifest:
        # Called again at every attempt, because retention and other compactions commit too.
        nonlocal tried
        found = set() if manifest is None else {one.name for one in manifest.files}
        if manifest is not None and entry.name in found:
            return manifest  # the previous attempt was committed, and the answer to it was lost
        if manifest is None or not {*names} <= found:
            raise _OvertakenError
        tried = True
        return manifest.swapped(names, entry)

    # True also if Spark runs a task again after it committed.
    present = store.read(group.shard)
    if present is None or not {*names} <= {one.name for one in present.files}:
        return result
    entry = _written(store, group)
    try:
        store.change(group.shard, partial(swapped, entry=entry))
    except _OvertakenError:
        if not tried:  # else a manifest may have named the file, and a reader may have planned with it
            store.delete_data(group.shard, entry.name)
        return result
    return replace(result, state="merged", after=entry.bytes)


def _written(store: ArchiveStore, group: Group) -> FileEntry:
    """One file with the content of the group's files, complete and durable."""
    first, last = group.files[0], group.files[-1]
    name = f"merged-{secrets.token_hex(16)}.parquet"
    schemas: dict[int, Schema] = {}
    with store.create_data(group.shard, name) as new:
        writer = DataFileWriter(
            new.sink, name, dataset=store.dataset, shard=group.shard, epoch=_epoch(store, group), begin=first.begin
        )
        for rows in map(joined, grouped(_batches(store, group, writer, schemas), _ROW_GROUP)):
            with storage_errors("write", new.path):
                writer.write(rows, schemas)
        with storage_errors("write", new.path):
            whole = writer.finish(last.end)
        entry = replace(
            whole,
            too_large=sum(one.too_large for one in group.files),
            merged=sum(one.merged for one in group.files),
        )
        _check(group, entry)
        new.close()
    return entry


def _epoch(store: ArchiveStore, group: Group) -> int:
    last = group.files[-1]
    with open_file(store, group.shard, last) as file:
        return file.footer.epoch


def _batches(
    store: ArchiveStore, group: Group, writer: DataFileWriter, schemas: dict[int, Schema]
) -> Iterator[pa.RecordBatch]:
    """The rows of the group, file by file. Adds its datamarkers to ``writer`` and its schemas to ``schemas``."""
    for entry in group.files:
        with open_file(store, group.shard, entry) as file:
            schemas.update(file.footer.schemas)
            yield from file.batches()
            for marker in file.footer.markers:
                writer.mark(marker)
            if entry.end.order > file.footer.end.order:
                writer.mark(entry.end)  # the log continued without updates for the shard


def _check(group: Group, entry: FileEntry) -> None:
    """Check that the content that was read is what the manifest records of the files, before it replaces them."""
    wrong = [name for name, said, found in _compared(group.files, entry) if said != found]
    if wrong:
        raise ArchiveError(
            (
                f"{', '.join(one.name for one in group.files)} do not hold what the manifest records: "
                f"{', '.join(wrong)} differ"
            ),
            shard=group.shard,
            hint="nothing was changed; `wormholectl archive verify --deep` shows which file is damaged",
        )


def _compared(files: Sequence[FileEntry], entry: FileEntry) -> Iterator[tuple[str, object, object]]:
    yield "rows", sum(one.rows for one in files), entry.rows
    yield "hash", sum(one.hash for one in files) & U64, entry.hash
    yield "operations", _sum(one.ops for one in files), Counter(entry.ops)
    yield "tables", _sum(one.tables for one in files), Counter(entry.tables)
    yield "key changes", sum(one.key_changes for one in files), entry.key_changes
    yield "partial rows", sum(one.partial for one in files), entry.partial


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total
