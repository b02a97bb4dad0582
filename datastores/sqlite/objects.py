"""The parts of ``wormholectl capture`` that depend on SQLite: lists, creates and removes the triggers and tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from datastores.sqlite import triggers
from datastores.sqlite.database import connect, is_of_schema, snapshot, understood
from datastores.sqlite.tables import Table, load_tables
from datastores.sqlite.triggers import CHANGES, Installation
from datastores.sqlite.url import Address
from wormhole.model.errors import UsageError
from wormhole.ports.datastore import ServerObjects

__all__ = ["find", "run", "state_of"]


def find(address: Address, wanted: Callable[[str], bool]) -> ServerObjects:
    """See :meth:`wormhole.ports.datastore.Datastore.server_objects`."""
    with understood(address.path), closing(connect(address.path)) as connection, snapshot(connection):
        tables = load_tables(connection)
        installation = triggers.load_installation(connection, tables)
        missing = triggers.create(installation, tables, wanted, address.max_changes)
        states = tuple((name, state_of(table, installation)) for name, table in tables.items())
        if installation is None:
            return ServerObjects(tuple(missing), (), left_out=_left_out(tables, wanted), tables=states)
        (count,) = connection.execute(f"SELECT count(*) - 1 FROM {CHANGES}").fetchone()
        kept = f"{count} recorded changes are lost, unless a publisher has read them" if count else ""
        return ServerObjects(
            tuple(missing),
            tuple(triggers.drop(installation)),
            kept=kept,
            left_out=_left_out(tables, wanted),
            tables=states,
        )


def run(address: Address, statements: Sequence[str]) -> None:
    """Run statements that :func:`find` returned, in one transaction."""
    with closing(connect(address.path, write=True)) as connection:
        try:
            triggers.run(connection, statements)
        except sqlite3.OperationalError as error:
            if not is_of_schema(error):
                with understood(address.path):
                    raise
            raise UsageError(
                f"nothing was changed, because a statement failed: {error}",
                hint="the tables may have changed meanwhile: run the command again",
            ) from error


def state_of(table: Table, installation: Installation | None) -> str:
    """The capture state of a table, in words."""
    if table.refused:
        return f"cannot be captured: {table.refused}"
    if installation is None or table.name not in installation.captured:
        return "not captured"
    if table.name in installation.stale:
        return "captured in part: its triggers are not those of the table as it is now"
    return "captured"


def _left_out(tables: Mapping[str, Table], wanted: Callable[[str], bool]) -> str:
    refused = [f"{name} ({table.refused})" for name, table in tables.items() if table.refused and wanted(name)]
    return f"it leaves out {', '.join(refused)}" if refused else ""
