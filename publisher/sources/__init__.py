"""Opens the log source of a datastore by its URL. Each kind of datastore has a package with a
:class:`~wormhole.ports.log_source.LogSource`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wormhole.config.datastores import datastore, installed
from wormhole.config.passwords import without_password
from wormhole.model.errors import UsageError
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Datastore, Login, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

__all__ = ["DISK_BUDGET", "MAX_UPDATE_BYTES", "open_source", "open_tables", "open_with"]

MAX_UPDATE_BYTES: Final = 64 << 20
"""Larger updates are delivered without their values."""
DISK_BUDGET: Final = 16 << 30
"""Bytes of log that a source keeps for flows that are behind. They cover hours of a busy datastore."""

_CONTRACT: Final = [name for name in vars(LogSource) if not name.startswith("_")]


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
    login: Login = Login(),  # noqa: B008 - frozen
    transient: bool = False,
    binlog_folder: Path | None = None,
) -> LogSource:
    """The source for ``url``. It does not access the datastore before its ``start``. For the options see the port.

    Raises :class:`~wormhole.model.errors.UsageError` for a URL of an unknown datastore, for a driver that is not
    installed, and for a source that lacks a method.
    """
    options = SourceOptions(
        log=log,
        state_dir=state_dir,
        sharding=sharding,
        max_update_bytes=max_update_bytes,
        disk_budget=disk_budget,
        login=login,
        server_ids=server_ids,
        skip_tables=skip_tables,
        history_tables=history_tables,
        transient=transient,
        binlog_folder=binlog_folder,
    )
    return open_with(url, options)


def open_with(url: str, options: SourceOptions) -> LogSource:
    """The source for ``url``, like :func:`open_source`, with all options in one object."""
    scheme, found = _found(url)
    with installed(found):
        source = found.open(url, options)
    if missing := [name for name in _CONTRACT if not callable(getattr(source, name, None))]:
        raise UsageError(
            f"the source of {scheme}:// ({type(source).__module__}) lacks {', '.join(missing)}",
            hint="install a release of its package that fits this one: wormhole.ports.log_source has the contract",
            code="entry-point-broken",
        )
    return source


def open_tables(url: str, options: SourceOptions) -> TableSource:
    """The existing rows of the log that :func:`open_with` tails with the same arguments.

    Raises :class:`~wormhole.model.errors.UsageError` if the datastore has no rows that can be read.
    """
    _, found = _found(url)
    with installed(found):
        return found.open_tables(url, options)


def _found(url: str) -> tuple[str, Datastore]:
    scheme = url.partition(":")[0] if ":" in url else ""
    found = datastore(scheme)
    try:
        found.check_url(url)
    except ValueError as error:
        raise UsageError(f"{without_password(url)!r} {error}") from None
    return scheme, found
