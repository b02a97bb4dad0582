"""Iceberg tables, by pyiceberg, in any catalogue that it supports.

A commit is one snapshot, whose summary has our places. The catalogue accepts the commit only if the previous snapshot
is still the one that was read. Our commits are never repeated on a newer snapshot, because the rows were computed from
the snapshot that was read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import assign_fresh_schema_ids, index_by_name
from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.typedef import Record

from spark_replay.export.expiry import expire
from spark_replay.export.leftovers import noted
from spark_replay.export.places import keep_places, load_places, run_of
from spark_replay.export.port import NewTableFile, SeenTable, TableFile, table_shape
from spark_replay.export.state import ANEW, KEY, Exported
from spark_replay.tables.columns import TableColumn
from spark_replay.tables.names import folder_name
from wormhole.model.errors import ArchiveConflict, ArchiveUnavailable, ReplayError, UsageError, WormholeError

__all__ = ["OpenIcebergTable", "open_catalogue"]

_NAMESPACE_SEPARATOR: Final = "_"
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Properties that each table gets unless it has them. They bound the metadata, which every commit writes again."""


def open_catalogue(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalogue ``name`` of pyiceberg's own configuration. ``properties`` take precedence over it.

    Raises :class:`~wormhole.model.errors.UsageError` if there is no such catalogue, or if it needs a missing package.
    """
    try:
        return load_catalog(name, **properties)
    except Exception as error:
        raise UsageError(
            f"catalogue {name} cannot be opened: {type(error).__name__}: {error}",
            hint="describe it in ~/.pyiceberg.yaml, or with --property type=rest --property uri=https://...",
        ) from error


class _Once(Transaction):
    """A commit that is not repeated on another snapshot, because it registers no producer for a repetition."""

    def _register_snapshot_producer(self, producer: Any) -> None:
        pass


class OpenIcebergTable:
    """The Iceberg table of one table of the dataset. ``shop.orders`` is table ``orders`` in the namespace ``shop``. A
    table without a dot is in the namespace of the dataset.
    """

    data = "data"

    def __init__(self, catalogue: Catalog, dataset: str, copy: str, table: str) -> None:
        namespace, _, own = table.rpartition(".")
        if not own:  # a name that ends with a dot
            namespace, _, own = table.partition(".")
        self.identifier = (namespace.replace(".", _NAMESPACE_SEPARATOR) or dataset, own)
        self.name = f"{catalogue.name}.{'.'.join(self.identifier)}"
        self._whose = dataset, copy, table
        self._catalogue = catalogue
        self._seen: Table | None = None
        self._home: Table | None = None  # shows where the files are: the table, or the table to be created

    @property
    def filesystem(self) -> fs.FileSystem:
        """See :class:`~spark_replay.export.port.OpenTable`."""
        return self._place()[0]

    @property
    def root(self) -> str:
        """See :class:`~spark_replay.export.port.OpenTable`."""
        return self._place()[1]

    def _place(self) -> tuple[fs.FileSystem, str]:
        assert self._home is not None, "it was neither seen nor drafted"
        return _place(self._home)

    def url(self, path: str) -> str:
        """The URL in the table's metadata of a file within the file system."""
        assert self._home is not None
        return f"{_location(self._home)}/{path.removeprefix(self.root + '/')}"

    def stage(self, shape: pa.Schema) -> CreateTableTransaction:
        """Begin to create the table. The transaction determines where its files are."""
        with self.errors("create"):
            self._catalogue.create_namespace_if_not_exists(self.identifier[0])
            staged = self._staged(shape)
            self._check_place(staged._table)
            self._home = staged._table
            return staged

    def look(self) -> SeenTable:
        """See :meth:`~spark_replay.export.port.OpenTable.look`."""
        self._seen = self._home = None
        with self.errors("read"):
            try:
                table = self._catalogue.load_table(self.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                self._check_new()
                return SeenTable(None, "")
            state = self._state(table)
            state.check(*self._whose, self.name)
            self._check_schema(table, state)
            self._seen = self._home = table
            current = table.current_snapshot()
            return SeenTable(state, str(current.snapshot_id) if current else "", tuple(self._files(table)))

    def check(self, columns: Sequence[TableColumn]) -> None:
        """See :meth:`~spark_replay.export.port.OpenTable.check`. It does not use the catalogue."""
        try:
            if self._seen is None:
                schema = assign_fresh_schema_ids(self._catalogue._convert_schema_if_needed(table_shape(columns)))
            else:
                schema = IcebergDraft(self, columns).schema
            index_by_name(schema)  # also of fields within columns: a map m has m.key and m.value
        except Exception as error:
            raise UsageError(
                f"Iceberg cannot hold the columns of {self._whose[2]}: {error}",
                hint="give another type with --type, or leave the table out (-t names those to export)",
            ) from error

    def draft(self, columns: Sequence[TableColumn]) -> IcebergDraft:
        """See :meth:`~spark_replay.export.port.OpenTable.draft`."""
        self.check(columns)
        return IcebergDraft(self, columns)

    def committed(self, run: str, base: str) -> bool | None:
        """See :meth:`~spark_replay.export.port.OpenTable.committed`."""
        with self.errors("read"):
            try:
                table = self._catalogue.load_table(self.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return False
            after = [one for one in table.snapshots() if str(one.parent_snapshot_id or "") == base]
            texts = filter(None, map(_ours, after))
            if any(run_of(text, self.name) == run for text in texts):
                return True
            known = not base or table.snapshot_by_id(int(base)) is not None
            return False if known and after else None

    def _check_new(self) -> None:
        try:
            staged = self._staged(pa.schema([pa.field("_", pa.bool_())]))
        except NoSuchNamespaceError:
            return  # its place is not known yet
        self._check_place(staged._table)

    def tidy(self, now_us: int) -> None:
        """See :meth:`~spark_replay.export.port.OpenTable.tidy`."""
        with self.errors("remove old snapshots of"):
            table = self._catalogue.load_table(self.identifier)
            texts = {one.snapshot_id: _ours(one) for one in table.snapshots()}
            runs = {number: run_of(text, self.name) for number, text in texts.items() if text is not None}
            expire(table, *_place(table), _location(table), runs, now_us // 1000)

    def _staged(self, shape: pa.Schema) -> CreateTableTransaction:
        """A transaction that creates the table, in the catalogue's location with names that are valid in a URL."""
        staged = self._catalogue.create_table_transaction(self.identifier, shape)
        usual = _location(staged._table)
        for length in (2, 1):  # a namespace may have a location of its own
            end = "/".join(("", *self.identifier[-length:]))
            plain = "/".join(("", *map(folder_name, self.identifier[-length:])))
            if end != plain and usual.endswith(end):
                location = usual.removesuffix(end) + plain
                return self._catalogue.create_table_transaction(self.identifier, shape, location=location)
        return staged

    def _check_place(self, table: Table) -> None:
        """Refuse a new table if its place has the metadata of a table in another catalogue.

        Metadata of our own run, which was killed while it created the table here, is not refused."""
        filesystem, root = _place(table)
        found = filesystem.get_file_info(fs.FileSelector(f"{root}/metadata", allow_not_found=True))
        others = [one.base_name for one in found if one.base_name.endswith(".metadata.json")]
        if others and "" not in noted(filesystem, root).values():
            raise ReplayError(
                f"{self.name} is in another catalogue's hands: {_location(table)} has the metadata of an "
                f"Iceberg table ({others[0]}) that this catalogue does not know",
                hint="export through that catalogue, or give this one another warehouse; nothing was changed",
                code="export-conflict",
            )

    def _state(self, table: Table) -> Exported:
        """The state in our last snapshot. Later ones of other programs may only move rows to other files."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            if (text := _ours(snapshot)) is not None:
                where = f"snapshot {snapshot.snapshot_id} of {self.name}"
                return load_places(*_place(table), text, where)
            done = snapshot.summary.operation if snapshot.summary is not None else None
            if done is not Operation.REPLACE:
                if not any(map(_ours, table.snapshots())):
                    break
                raise ReplayError(
                    f"another writer wrote to {self.name}: snapshot {snapshot.snapshot_id} "
                    f"({done.value if done else 'unknown'}) changed its rows",
                    hint="stop that writer, then set the table back to the snapshot before (rollback_to_snapshot)",
                    code="export-conflict",
                )
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        raise ReplayError(
            f"{self.name} is not of this export: none of its snapshots records up to which place of the log it is",
            hint=f"name another catalogue; if it was exported here once, our last snapshot is expired: {ANEW}",
            code="export-conflict",
        )

    def _check_schema(self, table: Table, state: Exported) -> None:
        given = {(field.name, str(_plain(field.type))) for field in schema_to_pyarrow(table.schema())}
        ours = {(field.name, str(_plain(field.type))) for field in table_shape(state.columns)}
        if changed := sorted({name for name, _ in given ^ ours}):
            raise ReplayError(
                f"another writer changed the columns of {self.name}: {', '.join(changed)}",
                hint=ANEW,
                code="export-conflict",
            )

    def _files(self, table: Table) -> Iterator[TableFile]:
        root, prefix = _place(table)[1], _location(table)
        for task in table.scan().plan_files():
            if task.delete_files:
                raise ReplayError(f"another writer deleted rows of {self.name}", hint=ANEW)
            file = task.file
            if not file.file_path.startswith(f"{prefix}/"):
                raise ReplayError(f"{self.name} has files in another place: {file.file_path}", hint=ANEW)
            path = f"{root}{file.file_path.removeprefix(prefix)}"
            yield TableFile(path, file.record_count, file.file_size_in_bytes, file)

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Within the block, turn errors of the library into ours."""
        try:
            yield
        except WormholeError:
            raise
        except CommitStateUnknownException as error:
            raise ArchiveUnavailable(
                f"it is not known whether {self.name} has the commit: {error}",
                hint="run it again: it reads from the table what was committed",
            ) from error
        except OSError as error:
            raise ArchiveUnavailable(
                f"cannot {doing} {self.name}: {error}",
                hint="see whether the catalogue and its storage are well, then try again",
            ) from error
        except Exception as error:
            raise ReplayError(
                f"cannot {doing} {self.name}: {type(error).__name__}: {error}",
                hint="see what the catalogue contains about it",
            ) from error


class IcebergDraft:
    """See :class:`~spark_replay.export.port.Draft`."""

    def __init__(self, table: OpenIcebergTable, columns: Sequence[TableColumn]) -> None:
        self._table = table
        shape = table_shape(columns)
        seen = table._seen
        self._transaction: Transaction = table.stage(shape) if seen is None else _Once(seen)
        if seen is not None:
            self._evolve(seen, shape)
        properties = self._transaction.table_metadata.properties
        if missing := {name: value for name, value in _PROPERTIES.items() if name not in properties}:
            self._transaction.set_properties(missing)
        self.schema = self._transaction.table_metadata.schema()
        self.shape = schema_to_pyarrow(self.schema, include_field_ids=True)

    def _evolve(self, seen: Table, shape: pa.Schema) -> None:
        """Change the table's columns. A column whose type changed becomes a new column of that name, without the former
        values."""
        given = {field.name: str(_plain(field.type)) for field in schema_to_pyarrow(seen.schema())}
        gone = [name for name, kind in given.items() if str(_plain(shape.field(name).type)) != kind]
        if gone:
            with self._transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in gone:
                    update.delete_column((name,))
        new = [field for field in shape if field.name in gone or field.name not in given]
        if new:
            fresh = self._table._catalogue._convert_schema_if_needed(pa.schema(new))
            with self._transaction.update_schema(allow_incompatible_changes=True) as update:
                for field in fresh.fields:
                    update.add_column((field.name,), field.field_type)
                    before = (
                        shape.names[shape.get_field_index(field.name) - 1] if shape.get_field_index(field.name) else ""
                    )
                    if before:
                        update.move_after((field.name,), (before,))
                    else:
                        update.move_first((field.name,))

    def commit(self, state: Exported, added: Sequence[NewTableFile], removed: Sequence[TableFile]) -> str:
        """See :meth:`~spark_replay.export.port.Draft.commit`."""
        transaction = self._transaction
        with self._table.errors("commit to"):
            summary = {KEY: keep_places(self._table.filesystem, self._table.root, state)}
            try:
                update = transaction.update_snapshot(snapshot_properties=summary)
                with update.overwrite() if removed else update.fast_append() as producer:
                    for new in added:
                        producer.append_data_file(self._file(new))
                    for old in removed:
                        producer.delete_data_file(old.handle)
                    number = producer.snapshot_id
                transaction.commit_transaction()
            except (CommitFailedException, TableAlreadyExistsError) as error:
                raise ArchiveConflict(f"another writer committed to {self._table.name} first") from error
        return str(number)

    def _file(self, new: NewTableFile) -> IcebergFile:
        metadata = self._transaction.table_metadata
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(io.BytesIO(new.footer)),
            stats_columns=compute_statistics_plan(self.schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(self.schema),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._table.url(new.path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=new.size,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _location(table: Table) -> str:
    return table.location().rstrip("/")


def _place(table: Table) -> tuple[fs.FileSystem, str]:
    properties = dict(table.io.properties)
    scheme, netloc, path = PyArrowFileIO.parse_location(_location(table), properties)
    return PyArrowFileIO(properties).fs_by_scheme(scheme, netloc), path


def _ours(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(KEY)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without names of inner fields and sizes of offsets, because the library chooses both."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind
