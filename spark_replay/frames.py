"""Rows of the archive as a DataFrame: which files, as manifests say, and which of their rows.

Folders are never listed: a file that no manifest names does not count. Files are chosen by what their entries say (places, times); of those
that a range cuts, Spark leaves out the rows outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_replay.archive.columns import SCHEMA, place_bytes
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore
from wormhole.errors import ArchiveError
from wormhole.position import Datamarker
from wormhole.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "TYPES", "ShardFiles", "read", "reading", "schemas_of", "within_times"]

COLUMNS: Final = tuple(SCHEMA.names)
"""The columns of :mod:`spark_replay.archive.columns`; ``shard`` comes after them."""

TYPES: Final = (
    "place binary, tx_source string, tx_number bigint, tx_index int, ends_tx boolean, committed_at timestamp, op string, "
    "table string, key binary, old_key binary, schema_id bigint, partial boolean, update binary"
)
"""The same, as Spark's types."""
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_NAMED: Final = re.compile(r"(?:file|s3a|hdfs):[^\s,;]+?\.parquet")
_FOREIGN: Final = "wormhole: a file has no places"


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """What to read of one shard: of ``files``, which adjoin, the updates after ``begin`` up to ``until``; ``None``: from the first, to the
    last."""

    shard: str
    files: tuple[FileEntry, ...]
    begin: Datamarker | None = None
    until: Datamarker | None = None

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """Rows with the first <= place < the second are meant."""
        if not self.files:
            return b"", b""
        return _bound(self.begin or self.files[0].begin), _bound(self.until or self.files[-1].end)


def _bound(marker: Datamarker) -> bytes:
    # A transaction that begins at the marker has places "inside" there, and they lie after it.
    return place_bytes(marker.order, True, 0)


def within_times(files: Iterable[FileEntry], since_us: int = 0, until_us: int = 0) -> tuple[FileEntry, ...]:
    """Files that may hold updates committed from ``since_us`` up to, not including, ``until_us``; microseconds since 1970, 0: no bound.

    One whose updates have no commit times may hold any.
    """
    return tuple(
        entry
        for entry in files
        if not entry.last_us
        or ((not since_us or entry.last_us >= since_us) and (not until_us or entry.first_us < until_us))
    )


def read(spark: SparkSession, store: ArchiveStore, chosen: Sequence[ShardFiles]) -> DataFrame:
    """The updates of all these shards: the archive's columns, then ``shard``. One scan, in no order.

    Raises :class:`~wormhole.errors.ArchiveError` where a file is missing. What is wrong with a file's content shows when Spark reads it:
    do so within :func:`reading`.
    """
    import pyspark.sql.functions as f

    paths = [_GLOB.sub(r"\\\1", store.spark_url(one.shard, entry.name)) for one in chosen for entry in one.files]
    if not paths:
        return spark.createDataFrame([], f"{TYPES}, shard string")
    ranges = spark.createDataFrame(
        [(one.shard, *map(bytearray, one.bounds)) for one in chosen if one.files],
        "shard string, first_place binary, end_place binary",
    )
    with reading():
        rows = spark.read.schema(TYPES).parquet(*paths)
    # .../SHARD/data/NAME, as a URI: what a name may not hold stands there percent-encoded.
    folder = f.substring_index(f.substring_index(f.col("_metadata.file_path"), "/", -3), "/", 1)
    place = f.coalesce(f.col("place"), f.raise_error(f.concat(f.lit(f"{_FOREIGN}: "), f.col("_metadata.file_path"))))
    return (
        rows.select(
            *COLUMNS, f.url_decode(f.replace(folder, f.lit("+"), f.lit("%2B"))).alias("shard"), place.alias("_at")
        )
        .join(f.broadcast(ranges), "shard")
        .where((f.col("_at") >= f.col("first_place")) & (f.col("_at") < f.col("end_place")))
        .select(*COLUMNS, "shard")
    )


@contextmanager
def reading() -> Iterator[None]:
    """Around what makes Spark read the archive: its complaints about a file become :class:`~wormhole.errors.ArchiveError` with the name."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        told = str(error)
        named = _NAMED.search(told)
        if named is None:
            raise
        raise ArchiveError(
            f"{named[0]} cannot be read: {_problem(told)}",
            hint="`wormholectl archive verify` shows every file that is missing or damaged; restore it from a backup",
        ) from error


def _problem(told: str) -> str:
    if "PATH_NOT_FOUND" in told or "FILE_NOT_EXIST" in told or "FileNotFoundException" in told:
        return "the manifest names it, and it is not there"
    if _FOREIGN in told:
        return "it is no file of an archive"
    if "is not a Parquet file" in told or "CANNOT_READ_FILE_FOOTER" in told:
        return "it is no Parquet file, or only a part of one"
    return next((line.strip() for line in told.splitlines() if line.strip()), "Spark does not say why")[:300]


def schemas_of(store: ArchiveStore, chosen: Sequence[ShardFiles]) -> dict[int, Schema]:
    """Every schema that the rows refer to, by id as an unsigned number. Opens the footers of so few files as name them all.

    Raises :class:`~wormhole.errors.ArchiveError` for a file that is missing, foreign, or lacks what its entry says.
    """
    found: dict[int, Schema] = {}
    for one in chosen:
        for entry in one.files:
            wanted = {int(given, 16) for given in entry.schemas}
            if wanted <= found.keys():
                continue
            found.update(_in_footer(store, one.shard, entry))
            if missing := wanted - found.keys():
                raise ArchiveError(
                    f"{entry.name} lacks schema {min(missing):016x}, which its rows refer to",
                    shard=one.shard,
                    hint="`wormholectl archive verify` shows what else is damaged; restore the file from a backup",
                )
    return found


def _in_footer(store: ArchiveStore, shard: str, entry: FileEntry) -> Mapping[int, Schema]:
    with open_file(store, shard, entry) as file:
        return file.footer.schemas
