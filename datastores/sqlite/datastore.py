"""The datastore port for SQLite: its URL, options, checks and constructors. Imports no module that reads the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

from datastores.sqlite.url import FORM, SEQUENCE, address_of, check_url
from wormhole.model.capabilities import Capabilities
from wormhole.model.findings import Report
from wormhole.model.table_definition import TableDefinition
from wormhole.model.values import Op
from wormhole.ports.datastore import Datastore, Login, ServerObjects, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

__all__ = ["DATASTORE"]


class SqliteDatastore(Datastore):
    """See the port."""

    requirement = "wormhole-pubsub[publisher]"
    capabilities = Capabilities(title="SQLite", row_before=False, ops=(Op.UPSERT, Op.DELETE))
    one_host = "its log is in the database's file, which is on one host"
    captures = True
    refuses: ClassVar[Mapping[str, str]] = {
        "password_file": "an SQLite file has no password",
        "pin_folder": "its changes are recorded in state_dir",
        "binlog_folder": "its changes are recorded in state_dir",
        "server_ids": "an SQLite file is not asked over a network",
        "skip_tables": "`wormholectl capture install --tables` names the tables that are recorded",
        "history_tables": "SQLite has no system-versioned tables",
    }

    def form(self, scheme: str) -> str:
        return FORM

    def check_url(self, url: str, *, configured: bool = False) -> None:
        check_url(url)

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.sqlite.source import SqliteSource

        return SqliteSource(address_of(url), options)

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        from datastores.sqlite.existing_rows import SqliteTables

        return SqliteTables(address_of(url), options)

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        from datastores.sqlite.described import describe

        return describe(address_of(url), wanted)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.sqlite import doctor

        return doctor.examine(url, address_of(url), state_dir)

    def server_objects(self, url: str, login: Login, tables: Sequence[str] = ()) -> ServerObjects:
        from datastores.sqlite import objects

        return objects.find(address_of(url), lambda name: any(fnmatchcase(name, one) for one in tables))

    def run_statements(self, url: str, login: Login, statements: Sequence[str]) -> None:
        from datastores.sqlite import objects

        objects.run(address_of(url), statements)

    def is_place(self, text: str) -> bool:
        return SEQUENCE.fullmatch(text) is not None

    def name_in(self, url: str) -> str:
        return address_of(url).path.stem


DATASTORE = SqliteDatastore()
