"""The datastore port for RocksDB: its URL, options, checks and constructors. Imports no module that reads the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from datastores.rocksdb.url import FORM, check_url, database_path
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import UsageError
from wormhole.model.findings import Report
from wormhole.model.values import Op
from wormhole.ports.datastore import Datastore, Login, SourceOptions, Standing
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

__all__ = ["DATASTORE"]


class RocksDatastore(Datastore):
    """See the port."""

    requirement = "wormhole-pubsub[publisher,rocksdb]"
    capabilities = Capabilities(
        title="RocksDB", of_bytes=True, row_before=False, ops=(Op.UPSERT, Op.DELETE, Op.MERGE, Op.DELETE_RANGE)
    )
    refuses: ClassVar[Mapping[str, str]] = {
        "password_file": "a RocksDB has no password",
        "binlog_folder": "pin_folder is where its log files are kept",
        "server_ids": "a RocksDB is not asked over a network",
        "skip_tables": "a RocksDB has column families, which filters leave out",
        "history_tables": "a RocksDB has no system-versioned tables",
    }
    table_words = ("column family", "column families")
    on_a_disk = True

    def form(self, scheme: str) -> str:
        return FORM

    def check_url(self, url: str, *, configured: bool = False) -> None:
        check_url(url)

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.rocksdb.source import RocksSource

        return RocksSource(
            database_path(url),
            log=options.log,
            state_dir=options.state_dir,
            sharding=options.sharding,
            max_update_bytes=options.max_update_bytes,
            disk_budget=options.disk_budget,
        )

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        from datastores.rocksdb.existing_rows.source import RocksTables

        if find_spec("rocksdict") is None:
            raise UsageError(
                "existing rows of a RocksDB are read through rocksdict, which is not installed",
                hint=f"pip install '{self.requirement}'",
                code="extra-missing",
            )
        return RocksTables(
            database_path(url),
            log=options.log,
            state_dir=options.state_dir,
            sharding=options.sharding,
            max_update_bytes=options.max_update_bytes,
            folder=options.rows_dir,
        )

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.rocksdb import doctor

        return doctor.check(url, state_dir)

    def standing(self, url: str, login: Login, delivered: Collection[str], *, failover: bool) -> Standing:
        from datastores.rocksdb.standing import standing

        return standing(database_path(url), delivered)

    def local_path(self, url: str) -> Path | None:
        return database_path(url)


DATASTORE = RocksDatastore()
