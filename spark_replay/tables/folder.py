"""The folder into which tables are written as Parquet. A JSON file in it is written last and makes it valid.

Each task writes its rows as one file, through the same storage as everything else, and reports the file to the driver.
The driver removes files of tasks that were given up. Spark's own writer would need another client for the same storage.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay.archive.json_checksum import check_checksum, with_checksum
from spark_replay.archive.open_storage import open_storage
from spark_replay.frames import reading
from spark_replay.tables.names import folder_name
from spark_replay.tables.updates import WrittenFile, write_rows
from wormhole.model.errors import ReplayError, UsageError, WormholeError
from wormhole.model.json_input import read_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Folder", "TableWritten", "Written", "table_folder"]

_FORMAT: Final = 1
Rows = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TableWritten:
    """One table: its folder within the folder, and the number of its rows. ``problems``: why it is not complete; empty
    for a table of a history.
    """

    folder: str
    rows: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a written folder.

    ``places``: the end of each shard. ``left_out``: tables that cannot be written, with the reason. ``problems``: why
    applications that want certain tables, or any table, cannot start from it; empty for a history, because no
    application starts from one. ``notes``: what else an operator should know.
    """

    to: str
    tables: Mapping[str, TableWritten]
    places: Mapping[str, str]
    left_out: Mapping[str, str]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def table_folder(table: str) -> str:
    """The path of a table within the folder."""
    return f"tables/{folder_name(table)}"


class Folder:
    """A snapshot's or a history's folder: a path, ``s3://bucket/folder`` or ``hdfs://host:port/folder``.

    ``work``: a subfolder with the writer's work in progress, and ``<work>.json`` beside it; empty: there is none. If
    the writer did not finish, the next run continues with this work and writes everything else anew. Calls block.
    """

    def __init__(self, to: str, about: str, work: str = "") -> None:
        self.to = to
        self._about = about
        self._work = work
        self.storage = open_storage(to)

    def begin(self) -> None:
        """Create the folder. Raises :class:`~wormhole.model.errors.UsageError` if it is not empty: nothing is ever
        overwritten.
        """
        there = [*self.storage.folders(), *(one.name for one in self.storage.files(""))]
        if self._work:
            plan = f"{self._work}.json"
            there = [name for name in there if name not in (self._work, plan) and not name.startswith(f".{plan}.")]
        if there:
            raise UsageError(
                f"{self.to} is not empty: {', '.join(there[:3])}",
                hint="name a new folder, or empty it",
                code="output-exists",
            )
        self.storage.make_root()

    def write(
        self, df: DataFrame, name: str, shape: pa.Schema, made: Callable[[Rows], Rows] = iter
    ) -> list[WrittenFile]:
        """Write what ``made`` makes of the rows, in columns of ``shape``: one Parquet file per partition, in order."""
        with reading():
            found = df.mapInArrow(partial(_written, self, name, shape, made), "file binary").collect()
        files = [pickle.loads(bytes(one["file"])) for one in found]  # noqa: S301 - what our own tasks wrote
        return self.settle(name, shape, files)

    def settle(self, name: str, shape: pa.Schema, files: Sequence[WrittenFile]) -> list[WrittenFile]:
        """Delete all files of the subfolder ``name`` except ``files``.

        If ``files`` is empty, one file without rows is written for readers.
        """
        named = list(files) or [write_rows(self.storage, name, shape, ())]
        known = {one.file.path for one in named}
        for one in self.storage.files(name):
            if f"{name}/{one.name}" not in known:
                self.storage.delete(f"{name}/{one.name}")
        return named

    def finish(self, given: Mapping[str, Any]) -> None:
        """Write the JSON file, which makes the folder valid."""
        self.storage.replace(self._about, with_checksum({"format": _FORMAT, **given}, indent=1, ensure_ascii=False))

    def remove_work(self) -> None:
        """Remove the work in progress of a writer that finished. Raises nothing, because remaining files do no harm."""
        with suppress(OSError, WormholeError):
            self.storage.delete(f"{self._work}.json")
            self.storage.filesystem.delete_dir(self.storage.path(self._work))

    def about(self) -> dict[str, Any]:
        """The content that :meth:`finish` wrote.

        Raises :class:`~wormhole.model.errors.ReplayError` if it does not exist, or was written by a newer release.
        """
        data = self.storage.read(self._about)
        if data is None:
            raise ReplayError(
                f"there is no {self._about} in {self.to}: what wrote there did not finish, or it is another folder",
                hint="name the folder that `wormholectl snapshot --to` was given, or write it anew",
            )
        try:
            given: dict[str, Any] = read_json(data)
            newer = given["format"] > _FORMAT
            check_checksum(data)
        except (ValueError, KeyError, TypeError) as error:
            raise ReplayError(f"{self.to}/{self._about} cannot be read: {error}", hint="write it anew") from error
        if newer:
            raise ReplayError(
                f"{self.to}/{self._about} is of a newer release: its format is {given['format']}",
                hint="install the release that wrote it, or a later one",
                code="release-too-old",
            )
        return given


def _written(folder: Folder, name: str, shape: pa.Schema, made: Callable[[Rows], Rows], given: Rows) -> Iterator[Any]:
    """Runs on the executors: writes rows as a file, and yields a row that describes the file."""
    rows = iter(made(given))
    first = next((batch for batch in rows if batch.num_rows), None)
    if first is not None:
        file = write_rows(folder.storage, name, shape, chain([first], rows))
        yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(file)]})
