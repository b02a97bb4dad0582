"""Where tables are written: a folder of Parquet that counts once the JSON beside it is there, which is written last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow.parquet as pq

from spark_replay.archive.json_checksum import has_checksum, with_checksum
from spark_replay.archive.storage import open_storage
from wormhole.model.errors import ReplayError, UsageError, WormholeError
from wormhole.model.json_input import read_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Folder", "TableWritten", "Written", "table_folder"]

_FORMAT: Final = 1
_ROWS_PER_FILE: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class TableWritten:
    """One table: where it lies in the folder, and how many rows it has. ``problems``: why it is not complete; none for
    a table of a history.
    """

    folder: str
    rows: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What was written. ``places``: by shard, where it ends; ``left_out``: tables that cannot be written, and why.
    ``problems``: why applications that want certain tables, or any, cannot start from it; none for a history, which
    never is a start. ``notes``: what else an operator should know.
    """

    to: str
    tables: Mapping[str, TableWritten]
    places: Mapping[str, str]
    left_out: Mapping[str, str]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def table_folder(table: str) -> str:
    """Where a table lies in the folder. Readers pass over names that begin with ``_`` or ``.``."""
    name = quote(table, safe="")
    return f"tables/{'%' + format(ord(name[0]), 'X') + name[1:] if name[0] in '_.' else name}"


class Folder:
    """A snapshot's or a history's folder: a path, ``s3://bucket/folder`` or ``hdfs://host:port/folder``.

    ``work``: a folder within that the writer keeps its work in, with a file of that name and ``.json`` beside it. What
    it left there is gone on with, and all else that it wrote before, as it did not finish, is written anew. Empty:
    there is none. Calls block.
    """

    def __init__(self, to: str, about: str, work: str = "") -> None:
        self.to = to
        self._about = about
        self._work = work
        self.storage = open_storage(to)

    def begin(self) -> None:
        """Raises :class:`~wormhole.model.errors.UsageError` for a folder that is not empty: nothing there is ever
        written over.
        """
        there = [*self.storage.folders(), *(one.name for one in self.storage.files(""))]
        if self._work:
            plan = f"{self._work}.json"
            there = [name for name in there if name not in (self._work, plan) and not name.startswith(f".{plan}.")]
        if there:
            raise UsageError(f"{self.to} is not empty: {', '.join(there[:3])}", hint="name a new folder, or empty it")

    def url(self, name: str) -> str:
        """How Spark names a folder within."""
        return self.storage.spark_url(name)

    def write(self, df: DataFrame, name: str, rows: int | None = None, row_group: int | None = None) -> None:
        """The DataFrame as Parquet; ``rows``: how many there are about, which says into how many files they go.
        ``row_group``: bytes of one."""
        if rows is not None:
            df = df.coalesce(max(1, math.ceil(rows / _ROWS_PER_FILE)))
        how = {} if row_group is None else {"parquet.block.size": str(row_group)}
        df.write.mode("overwrite" if self._work else "errorifexists").options(**how).parquet(self.url(name))

    def rows(self, name: str) -> int:
        """How many rows a folder of Parquet within has, by its footers."""
        return sum(int(metadata.num_rows) for metadata in self._footers(name))

    def _footers(self, name: str) -> Iterator[Any]:
        for one in self.storage.files(name):
            if one.name.endswith(".parquet"):
                with self.storage.open_input(f"{name}/{one.name}") as source:
                    yield pq.read_metadata(source)

    def finish(self, given: Mapping[str, Any]) -> None:
        """Write the JSON: from now on the folder counts."""
        self.storage.replace(self._about, with_checksum({"format": _FORMAT, **given}, indent=1, ensure_ascii=False))

    def remove_work(self) -> None:
        """The writer finished. Raises nothing: what cannot be removed is in nobody's way."""
        with suppress(OSError, WormholeError):
            self.storage.delete(f"{self._work}.json")
            self.storage.filesystem.delete_dir(self.storage.path(self._work))

    def about(self) -> dict[str, Any]:
        """What :meth:`finish` wrote.

        Raises :class:`~wormhole.model.errors.ReplayError` where it is not there, or of a newer release.
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
            has_checksum(data)
        except (ValueError, KeyError, TypeError) as error:
            raise ReplayError(f"{self.to}/{self._about} cannot be read: {error}", hint="write it anew") from error
        if newer:
            raise ReplayError(
                f"{self.to}/{self._about} is of a newer release: its format is {given['format']}",
                hint="install the release that wrote it, or a later one",
            )
        return given
