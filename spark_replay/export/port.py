"""What the exporter needs of a table format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from spark_replay.export.state import Exported
from spark_replay.tables.columns import TableColumn, arrow_type

__all__ = ["OURS", "Draft", "NewTableFile", "OpenTable", "SeenTable", "TableFile", "table_shape"]

OURS: Final = {"_shard": pa.string(), "_unavailable": pa.list_(pa.string())}
"""Our columns, behind those of the table."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file with rows of the table. ``path``: within the table's file system. ``size``: in bytes.
    ``handle``: the library's.
    """

    path: str
    rows: int
    size: int
    handle: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NewTableFile:
    """A Parquet file that no commit names yet. ``footer``: its metadata, as a Parquet file without rows."""

    path: str
    rows: int
    size: int
    footer: bytes


class Draft(Protocol):
    """A commit that is being prepared on what was seen."""

    shape: pa.Schema
    """How the new files have to be written."""

    def commit(self, state: Exported, added: Sequence[NewTableFile], removed: Sequence[TableFile]) -> str:
        """Make it, if the table is still as it was seen; returns its version. Raises
        :class:`~wormhole.model.errors.ArchiveConflict` where another writer committed since and nothing of ours was,
        :class:`~wormhole.model.errors.ArchiveUnavailable` where it is unknown whether it was made, and
        :class:`~wormhole.model.errors.ReplayError` for what the table's format refuses.
        """


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table at one moment. ``state``: of our last commit; ``None``: there is no table. ``version``: of the table,
    empty where there is none.
    """

    state: Exported | None
    version: str
    files: tuple[TableFile, ...] = ()


class OpenTable(Protocol):
    """One table. Calls block."""

    name: str
    """For people."""
    data: str
    """The folder within the table's own for data files; empty: it itself."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """Where the table's files are."""

    @property
    def root(self) -> str:
        """The path of the table's own folder within the file system."""

    def look(self) -> SeenTable:
        """Read it anew. Raises :class:`~wormhole.model.errors.ReplayError` for a table that others write to."""

    def check(self, columns: Sequence[TableColumn]) -> None:
        """Raises :class:`~wormhole.model.errors.UsageError` for a column that the format cannot hold."""

    def draft(self, columns: Sequence[TableColumn]) -> Draft:
        """Begin a commit on what :meth:`look` returned last, to the table with these columns.

        Raises :class:`~wormhole.model.errors.UsageError` for a column that the format cannot hold.
        """

    def tidy(self, now_us: int) -> None:
        """Remove versions that are older than the table keeps, with the files that only they use, where commits list
        all versions. ``now_us``: microseconds since 1970.
        """

    def committed(self, run: str, base: str) -> bool | None:
        """Whether this run committed on version ``base``; ``None``: nobody knows any more."""


def table_shape(columns: Sequence[TableColumn]) -> pa.Schema:
    """The columns of a table and ours."""
    own = [pa.field(column.shown, arrow_type(column.type)) for column in columns]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in OURS.items())])
