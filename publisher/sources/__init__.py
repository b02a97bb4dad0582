"""Where changes come from: one package per kind of datastore, each a :class:`~wormhole.ports.log_source.LogSource`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from wormhole.config.server_url import SERVER_KINDS, without_password
from wormhole.model.errors import UsageError
from wormhole.model.sharding import Sharding
from wormhole.ports.log_source import LogSource

__all__ = ["DISK_BUDGET", "MAX_UPDATE_BYTES", "open_source"]

MAX_UPDATE_BYTES: Final = 64 << 20
"""Larger updates come without their values."""
DISK_BUDGET: Final = 16 << 30
"""Bytes of log that a source keeps from deletion for flows that are behind: hours of a busy store, and no full disk."""


def open_source(
    url: str,
    *,
    log: str,
    state_dir: Path,
    sharding: Sharding,
    max_update_bytes: int = MAX_UPDATE_BYTES,
    disk_budget: int = DISK_BUDGET,
    server_ids: str = "",
    skip_tables: frozenset[str] = frozenset(),
    history_tables: frozenset[str] = frozenset(),
    password_file: Path | None = None,
    my_cnf: bool = False,
    prompt: Callable[[str], str] | None = None,
) -> LogSource:
    """The source that ``url`` names; nothing is touched before its ``start``.

    ``log``: the log's name, which the shards' names begin with. ``state_dir``: a folder of this log's own, for RocksDB best on the
    datastore's file system. ``disk_budget``: bytes of log that the source may keep there from deletion. The rest is for servers:
    ``server_ids``, the replication ids of the readers (``first-last``, empty: made from the log's name), ``skip_tables`` (``database.table``) of which nothing is handed on,
    ``history_tables``, system-versioned ones whose history is handed on too, and where a password comes from.
    Raises :class:`~wormhole.model.errors.UsageError` for a URL of no known form.
    """
    scheme = url.partition(":")[0]
    # The decoders are loaded for the sources that are used only.
    if scheme in SERVER_KINDS:
        from publisher.sources.mysql.source import MySqlSource

        return MySqlSource(
            url,
            log=log,
            state_dir=state_dir,
            sharding=sharding,
            max_update_bytes=max_update_bytes,
            disk_budget=disk_budget,
            server_ids=server_ids,
            skip_tables=skip_tables,
            history_tables=history_tables,
            password_file=password_file,
            my_cnf=my_cnf,
            prompt=prompt,
        )
    if scheme != "rocksdb":
        raise UsageError(
            f"{scheme!r} in {without_password(url)!r} is no known kind of source",
            hint="write rocksdb:///absolute/path or mysql://user@host:3306",
        )
    from publisher.sources.rocksdb.source import RocksSource
    from publisher.sources.rocksdb.url import database_path

    return RocksSource(
        database_path(url),
        log=log,
        state_dir=state_dir,
        sharding=sharding,
        max_update_bytes=max_update_bytes,
        disk_budget=disk_budget,
    )
