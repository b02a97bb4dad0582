"""Rows of the archive as a DataFrame.

Files are chosen by their entries in manifests (places, times). Folders are never listed, because a file that no
manifest names is not part of the archive. If a range begins or ends within a file, rows outside it are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import after, open_file, upto
from spark_replay.archive.store import ArchiveStore
from spark_replay.combine import rows_that_count
from spark_replay.selected import ALL, COLUMNS, TYPES, VERIFY, FilePiece, Wanted, piece_rows, tasks_of
from spark_replay.spark.portions import read_portions
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, ReplayError, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ShardFiles", "read", "reading", "schemas_of", "within_times"]

_KINDS: Final = {one.__name__: one for one in (ArchiveError, ArchiveUnavailable, ReplayError, UsageError)}
_OURS: Final = re.compile(rf"wormhole\.model\.errors\.({'|'.join(_KINDS)}): (.*)")


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """The updates to read from one shard: those of the adjacent ``files`` after ``begin`` and up to ``until``.

    ``None``: from the first update, or up to the last one.
    """

    shard: str
    files: tuple[FileEntry, ...]
    begin: Datamarker | None = None
    until: Datamarker | None = None

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """Two places. The range has the rows with first < place <= second."""
        if not self.files:
            return b"", b""
        return after(self.begin or self.files[0].begin), upto(self.until or self.files[-1].end)


def within_times(files: Iterable[FileEntry], since_us: int = 0, until_us: int = 0) -> tuple[FileEntry, ...]:
    """Files that may have updates committed from ``since_us`` on and before ``until_us``.

    Both are microseconds since 1970; 0: no bound. A file whose updates have no commit times is always included.
    """
    return tuple(
        entry
        for entry in files
        if not entry.last_us
        or ((not since_us or entry.last_us >= since_us) and (not until_us or entry.first_us < until_us))
    )


def read(
    spark: SparkSession,
    store: ArchiveStore,
    chosen: Sequence[ShardFiles],
    columns: Sequence[str] = COLUMNS,
    wanted: Wanted = ALL,
    *,
    current: bool = False,
) -> DataFrame:
    """The ``wanted`` updates of all these shards, in no order: ``columns``, then ``shard``.

    ``current``: only the rows at the end are needed, so a task leaves out changes that its later ones make superfluous.

    Tasks use the reader of this package, because Spark's own reader does not verify headers of pages and footers. A
    damaged file is found when Spark reads it. Within :func:`reading` this raises one of our errors, which names the
    file.
    """
    types = dict(one.split(" ") for one in TYPES.split(", "))
    shape = ", ".join([*(f"`{name}` {types[name]}" for name in columns), "shard string"])
    every = (FilePiece(one.shard, entry, *one.bounds) for one in chosen for entry in one.files)
    pieces = [piece for one in every if (piece := wanted.cut(one)) is not None]
    tasks = tasks_of(pieces, spark.sparkContext.defaultParallelism)
    return read_portions(spark, tasks, partial(_task_rows, store, tuple(columns), wanted, current), shape)


def _task_rows(
    store: ArchiveStore, columns: Sequence[str], wanted: Wanted, current: bool, pieces: Iterable[FilePiece]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's pieces of files. Runs on the executors."""
    rows = (batch for piece in pieces for batch in piece_rows(store, piece, columns, wanted))
    return rows_that_count(rows) if current else rows


@contextmanager
def reading() -> Iterator[None]:
    """Within the block, turn errors of Spark back into the errors that its tasks raised for files of the archive."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _OURS.findall(str(error))
        if not found:
            raise
        kind, text = found[-1]  # Python prints the causes of an error before it
        problem = Problem.parsed(text)  # Spark passes on only the text of an exception
        hint = problem.hint or (VERIFY if kind == "ArchiveError" else None)
        raise _KINDS[kind](problem.text, hint=hint, code=problem.code or None) from error


def schemas_of(store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[int, Schema]:
    """Every schema of the rows, by id as an unsigned number. Opens as few footers as necessary.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a file that is missing, foreign, or lacks a schema of its
    entry.
    """
    found: dict[int, Schema] = {}
    for one in chosen:
        for entry in one.files:
            wanted = {int(given, 16) for given in entry.schemas}
            if wanted <= found.keys():
                continue
            with open_file(store, one.shard, entry) as file:
                found.update(file.footer.schemas)
            if missing := wanted - found.keys():
                raise ArchiveError(
                    f"{entry.name} lacks schema {min(missing):016x}, which its rows refer to",
                    shard=one.shard,
                    hint="`wormholectl archive verify` shows what else is damaged; restore the file from a backup",
                )
    return found
