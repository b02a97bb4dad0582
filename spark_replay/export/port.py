"""The interface that the exporter needs of a table format."""

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
"""The columns that the export adds after the columns of the table."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file with rows of the table. ``path``: within the table's file system. ``size``: in bytes.
    ``handle``: the library's own object for the file.
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
    """A commit that is being prepared on the table as it was seen."""

    shape: pa.Schema
    """The columns of the new files."""

    def commit(self, state: Exported, added: Sequence[NewTableFile], removed: Sequence[TableFile]) -> str:
        """Commit if the table is still as it was seen. Returns the new version.

        Raises :class:`~wormhole.model.errors.ArchiveConflict` if another writer committed since and ours was not made,
        :class:`~wormhole.model.errors.ArchiveUnavailable` if it is unknown whether the commit was made, and
        :class:`~wormhole.model.errors.ReplayError` if the table's format refuses it.
        """


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table at one moment. ``state``: what our last commit stored; ``None``: there is no table. ``version``: the
    table's version; empty if there is no table.
    """

    state: Exported | None
    version: str
    files: tuple[TableFile, ...] = ()


class OpenTable(Protocol):
    """One table. Calls block."""

    name: str
    """The table's name for people."""
    data: str
    """The folder for data files within the table's own folder; empty: this folder itself."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system of the table's files."""

    @property
    def root(self) -> str:
        """The path of the table's own folder within the file system."""

    def look(self) -> SeenTable:
        """Read the table anew. Raises :class:`~wormhole.model.errors.ReplayError` if others write to it."""

    def check(self, columns: Sequence[TableColumn]) -> None:
        """Raise :class:`~wormhole.model.errors.UsageError` for a column that the format cannot represent."""

    def draft(self, columns: Sequence[TableColumn]) -> Draft:
        """Begin a commit on what :meth:`look` returned last, to the table with these columns.

        Raises :class:`~wormhole.model.errors.UsageError` for a column that the format cannot represent.
        """

    def tidy(self, now_us: int) -> None:
        """Remove versions that are older than the table keeps, with the files that only they use.

        Formats whose commits list all versions need this. ``now_us``: microseconds since 1970.
        """

    def committed(self, run: str, base: str) -> bool | None:
        """Whether this run committed on version ``base``; ``None`` if this is no longer known."""


def table_shape(columns: Sequence[TableColumn]) -> pa.Schema:
    """The table's columns, then ours."""
    own = [pa.field(column.shown, arrow_type(column.type)) for column in columns]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in OURS.items())])
