"""Delta tables, by delta-rs: a folder for each table, whose log in ``_delta_log`` lists the valid files.

A commit is ``N.json``, which is created if absent. Our commits are never repeated on a newer version, because the rows
were computed from the version that was read.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, create_table_with_add_actions
from pyarrow import fs

from spark_replay.archive.open_storage import open_storage
from spark_replay.archive.storage import Storage
from spark_replay.export.leftovers import is_ours
from spark_replay.export.port import NewTableFile, SeenTable, TableFile, table_shape
from spark_replay.export.state import ANEW, KEY, Exported, state_from_text, state_to_text
from spark_replay.tables.columns import TableColumn
from spark_replay.tables.names import folder_name
from wormhole.model.errors import ArchiveConflict, ArchiveUnavailable, ReplayError, UsageError

__all__ = ["DeltaDraft", "OpenDeltaTable", "storage_options"]

_LOG: Final = "_delta_log"
_CATALOGUED: Final = ("catalogManaged", "catalogOwned", "coordinatedCommits")
"""Features and settings of tables whose commits are made by a catalogue."""
_FORBIDDEN: Final = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name must not have, unless the table maps names."""
_DECODED: Final = frozenset("%\\")
_ROWS: Final = ("add", "remove", "cdc")
_LONGEST: Final = 64


class OpenDeltaTable:
    """The Delta table of one table of the dataset, in a folder of that name in ``to``."""

    data = ""

    def __init__(self, to: str, dataset: str, copy: str, table: str) -> None:
        place, question, options = to.partition("?")
        if "://" in place and not place.startswith("s3://"):
            raise UsageError(f"Delta tables cannot lie in {place}", hint="use a folder or s3://bucket/folder")
        if bad := sorted(_DECODED & set(place)):
            raise UsageError(
                f"Delta tables cannot lie in {place}: its library reads {bad[0]} in a path as something else",
                hint="use a folder without it",
            )
        self.name = f"{place.rstrip('/')}/{folder_name(table)}"
        self._whose = dataset, copy, table
        self._storage: Storage = open_storage(f"{self.name}{question}{options}")
        self.options = storage_options(to)
        self._seen: DeltaTable | None = None

    @property
    def filesystem(self) -> fs.FileSystem:
        """See :class:`~spark_replay.export.port.OpenTable`."""
        return self._storage.filesystem

    @property
    def root(self) -> str:
        """See :class:`~spark_replay.export.port.OpenTable`."""
        return self._storage.root

    def look(self) -> SeenTable:
        """See :meth:`~spark_replay.export.port.OpenTable.look`."""
        self._seen = None
        with self.errors("read"):
            if not DeltaTable.is_deltatable(self.name, self.options):
                self._check_empty()
                return SeenTable(None, "")
            table = DeltaTable(self.name, storage_options=self.options)
            self._check_catalogue(table)
            state = self._state(table.version())
            state.check(*self._whose, self.name)
            self._check_schema(table, state)
            files = tuple(self._files(table))
            self._seen = table
            return SeenTable(state, str(table.version()), files)

    def check(self, columns: Sequence[TableColumn]) -> None:
        """See :meth:`~spark_replay.export.port.OpenTable.check`."""
        for column in columns:
            if bad := sorted(_FORBIDDEN & set(column.shown)):
                raise UsageError(
                    f"Delta cannot hold column {column.shown!r} of {self._whose[2]}: a name must not have {bad[0]!r}",
                    hint="export it to Iceberg, or leave the table out (-t names those to export)",
                )

    def draft(self, columns: Sequence[TableColumn]) -> DeltaDraft:
        """See :meth:`~spark_replay.export.port.OpenTable.draft`."""
        self.check(columns)
        return DeltaDraft(self, self._seen, columns)

    def tidy(self, now_us: int) -> None:
        """See :meth:`~spark_replay.export.port.OpenTable.tidy`: a Delta table's own VACUUM removes old files."""

    def committed(self, run: str, base: str) -> bool | None:
        """See :meth:`~spark_replay.export.port.OpenTable.committed`."""
        actions = self._actions(int(base) + 1 if base else 0)
        if actions is None:
            return None
        text = _ours(actions)
        return text is not None and state_from_text(text, self.name).run == run

    def _check_empty(self) -> None:
        there = [*self._storage.folders(), *(one.name for one in self._storage.files(""))]
        if strangers := [name for name in there if not is_ours(name) and name != _LOG]:
            raise ReplayError(
                f"{self.name} is no Delta table, and not empty: {', '.join(strangers[:3])}",
                hint="name another folder with --to; nothing was changed",
                code="export-conflict",
            )

    def _check_catalogue(self, table: DeltaTable) -> None:
        protocol, settings = table.protocol(), table.metadata().configuration
        known = [*(protocol.writer_features or ()), *settings]
        if found := [name for name in known if any(word in name for word in _CATALOGUED)]:
            raise ReplayError(
                f"{self.name} is in another catalogue's hands: {found[0]}: only that catalogue commits to it",
                hint=ANEW,
                code="export-conflict",
            )

    def _state(self, version: int) -> Exported:
        """The state in our last commit. Later commits of other programs may only move rows to other files."""
        for number in range(version, -1, -1):
            actions = self._actions(number)
            if actions is None:
                break
            if (text := _ours(actions)) is not None:
                return state_from_text(text, f"version {number} of {self.name}")
            if any(action.get(kind, {}).get("dataChange", False) for action in actions for kind in _ROWS):
                if not self._was_ours(number):
                    break
                said: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
                raise ReplayError(
                    f"another writer wrote to {self.name}: version {number} ({said.get('operation', 'unknown')} by "
                    f"{said.get('engineInfo', 'unknown')}) changed its rows",
                    hint=f"stop that writer, then restore the version before (RESTORE is a commit of that kind too: "
                    f"{ANEW})",
                    code="export-conflict",
                )
        raise ReplayError(
            f"{self.name} is not of this export: none of its versions records up to which place of the log it is",
            hint=f"name another place with --to; if it was exported here once, its log does not reach back to the last "
            f"commit of ours: {ANEW}",
            code="export-conflict",
        )

    def _was_ours(self, below: int) -> bool:
        """Whether one of our commits made a version before ``below``."""
        for number in range(below - 1, -1, -1):
            actions = self._actions(number)
            if actions is None or _ours(actions) is not None:
                return actions is not None
        return False

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        data = self._storage.read(f"{_LOG}/{version:020d}.json")
        if data is None:
            return None
        try:
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise ReplayError(f"version {version} of {self.name} cannot be read: {error}", hint=ANEW) from error

    def _check_schema(self, table: DeltaTable, state: Exported) -> None:
        given, ours = _types(table.schema()), _types(_schema(state.columns))
        if given != ours:
            changed = sorted({name for name, _ in set(given) ^ set(ours)})
            raise ReplayError(
                f"another writer changed the columns of {self.name}: {', '.join(changed)}",
                hint=ANEW,
                code="export-conflict",
            )

    def _files(self, table: DeltaTable) -> Iterator[TableFile]:
        actions = pa.table(table.get_add_actions())
        names, sizes, rows = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        for name, size, count in zip(names, sizes, rows, strict=True):
            yield TableFile(self._storage.path(unquote(name)), count or 0, size, name)

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Within the block, turn errors of the library into ours."""
        try:
            yield
        except DeltaError as error:
            raise ReplayError(f"cannot {doing} {self.name}: {error}", hint=f"see what it is; or {ANEW}") from error
        except OSError as error:
            raise ArchiveUnavailable(
                f"cannot {doing} {self.name}: {error}",
                hint="see whether the disk or the service is well, then try again",
            ) from error


class DeltaDraft:
    """See :class:`~spark_replay.export.port.Draft`."""

    def __init__(self, table: OpenDeltaTable, seen: DeltaTable | None, columns: Sequence[TableColumn]) -> None:
        self._table = table
        self._seen = seen
        self._schema = _schema(columns)
        self.shape = table_shape(columns)

    def commit(self, state: Exported, added: Sequence[NewTableFile], removed: Sequence[TableFile]) -> str:
        """See :meth:`~spark_replay.export.port.Draft.commit`."""
        now_ms = int(time.time() * 1000)
        ours = CommitProperties(custom_metadata={KEY: state_to_text(state)}, max_commit_retries=0)
        adds: list[AddAction | RemoveAction] = [self._add(file, now_ms) for file in added]
        table, seen = self._table, self._seen
        with table.errors("commit to"):
            try:
                if seen is None:
                    return self._create(state, added, now_ms, ours)
                if _types(seen.schema()) != _types(self._schema):
                    # The library removes all files: only so it accepts another schema.
                    seen.create_write_transaction(adds, "overwrite", self._schema, commit_properties=ours)
                else:
                    gone = [RemoveAction(file.handle, True, now_ms, file.size, {}) for file in removed]
                    seen.create_write_transaction([*adds, *gone], "append", self._schema, commit_properties=ours)
            except CommitFailedError as error:
                if seen is None or not self._holds_version(seen.version() + 1):
                    raise  # the library raises it for other faults too
                raise ArchiveConflict(f"another writer committed to {table.name} first") from error
            return str(seen.version() + 1)

    def _holds_version(self, version: int) -> bool:
        return self._table._actions(version) is not None

    def _create(self, state: Exported, added: Sequence[NewTableFile], now_ms: int, ours: CommitProperties) -> str:
        table = self._table
        try:
            create_table_with_add_actions(
                table.name,
                self._schema,
                [self._add(file, now_ms) for file in added],
                name=state.table,
                storage_options=table.options,
                commit_properties=ours,
            )
        except DeltaError as error:
            # It may also fail after the commit, when it reads the new table.
            if not self._holds_version(0):
                raise
            if not table.committed(state.run, ""):
                raise ArchiveConflict(f"another writer committed to {table.name} first") from error
        return "0"

    def _add(self, file: NewTableFile, now_ms: int) -> AddAction:
        path = file.path.removeprefix(f"{self._table.root}/")
        return AddAction(path, file.size, {}, now_ms, True, json.dumps(_statistics(file, self.shape)))


def _statistics(file: NewTableFile, shape: pa.Schema) -> dict[str, Any]:
    """Statistics by which a reader may leave the file out.

    They are of whole numbers and short texts, which JSON represents exactly."""
    footer = pq.read_metadata(io.BytesIO(file.footer))
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    at = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    for field in shape:
        if not (pa.types.is_int64(field.type) or pa.types.is_string(field.type)):
            continue
        groups = [footer.row_group(i).column(at[field.name]).statistics for i in range(footer.num_row_groups)]
        if not all(one is not None and one.has_null_count for one in groups):
            continue
        found["nullCount"][field.name] = sum(one.null_count for one in groups)
        held = [one for one in groups if one.num_values]
        if not held or not all(one.has_min_max for one in held):
            continue
        least, most = min(one.min for one in held), max(one.max for one in held)
        if len(str(least)) <= _LONGEST and len(str(most)) <= _LONGEST:
            found["minValues"][field.name], found["maxValues"][field.name] = least, most
    return {"numRecords": file.rows, **found}


def _schema(columns: Sequence[TableColumn]) -> Schema:
    return Schema.from_arrow(table_shape(columns))


def _types(schema: Schema) -> list[tuple[str, str]]:
    return [(field.name, field.type.to_json()) for field in schema.fields]


def _ours(actions: Sequence[dict[str, Any]]) -> str | None:
    for action in actions:
        text = action.get("commitInfo", {}).get(KEY)
        if isinstance(text, str):
            return text
    return None


def storage_options(to: str) -> dict[str, str]:
    """The options of ``s3://bucket/folder?region=...&endpoint_override=...&scheme=...``, by their names in delta-rs."""
    given = {name: values[-1] for name, values in parse_qs(urlsplit(to).query).items()} if "://" in to else {}
    found = {}
    if region := given.get("region"):
        found["AWS_REGION"] = region
    if endpoint := given.get("endpoint_override"):
        url = endpoint if "://" in endpoint else f"{given.get('scheme', 'https')}://{endpoint}"
        found["AWS_ENDPOINT_URL"] = url
        if url.startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
    return found
