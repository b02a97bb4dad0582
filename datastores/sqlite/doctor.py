"""``wormholectl doctor`` for an SQLite database. It only reads."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from datastores.sqlite import triggers
from datastores.sqlite.database import Connection, connect, snapshot, understood
from datastores.sqlite.objects import state_of
from datastores.sqlite.tables import Table, load_tables
from datastores.sqlite.triggers import CHANGES, Installation
from datastores.sqlite.url import Address
from wormhole.model.findings import Report, SeenTable, Severity

__all__ = ["examine"]


def examine(url: str, address: Address, state_dir: Path) -> Report:
    """See :meth:`wormhole.ports.datastore.Datastore.examine`."""
    path = address.path
    with understood(path), closing(connect(path)) as connection, snapshot(connection):
        report = Report(url, {"path": str(path), "library": sqlite3.sqlite_version})
        tables = load_tables(connection)
        report.tables += [SeenTable("", name, len(table.key)) for name, table in tables.items()]
        installation = triggers.load_installation(connection, tables)
        _check_journal(connection, report)
        _check_access(path, state_dir, report)
        _check_tables(path, tables, installation, report)
        if installation is not None:
            report.facts["identity"] = installation.identity
            _check_changes(connection, installation, report)
    return report


def _check_journal(connection: Connection, report: Report) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        report.add("journal_mode", Severity.OK, "journal_mode=wal: readers and writers do not wait for each other")
    else:
        report.add(
            "journal_mode",
            Severity.WARN,
            f"journal_mode={mode}: a commit waits for every reader, and a reader for a commit",
            "a write of the application fails with SQLITE_BUSY if its busy_timeout is shorter than our reading",
            "PRAGMA journal_mode = WAL; on a network file system keep this mode, and set a busy_timeout",
        )


def _check_access(path: Path, state_dir: Path, report: Report) -> None:
    if os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK):
        report.add("file_access", Severity.OK, "this user may read the file, and delete what was recorded")
    else:
        report.add(
            "file_access",
            Severity.PROBLEM,
            f"this user may not write {path} or its folder",
            "recorded changes cannot be deleted, and the triggers stop to record when there are max_changes of them",
            f"let the publisher's user write the file and its folder {path.parent}",
        )
    folder = next((one for one in (state_dir, *state_dir.parents) if one.exists()), state_dir)
    if not os.access(folder, os.W_OK):
        report.add(
            "state_dir",
            Severity.PROBLEM,
            f"{folder} cannot be written to",
            "the log cannot be recorded",
            "name a state directory that the publisher's user can write",
        )


def _check_tables(path: Path, tables: dict[str, Table], installation: Installation | None, report: Report) -> None:
    states: dict[str, list[str]] = {}
    for name, table in tables.items():
        states.setdefault(state_of(table, installation), []).append(name)
        if not table.refused and table.nullable:
            report.add(
                "primary_key",
                Severity.WARN,
                f"{name}: its primary key may be NULL",
                "such a row cannot be delivered, and holds the flow",
                f"declare {', '.join(table.key_columns)} NOT NULL",
            )
    for state, names in states.items():
        listed = ", ".join(names)
        if state == "captured":
            report.add("triggers", Severity.OK, f"changes are recorded of {listed}")
        elif state.startswith("cannot"):
            reason = state.partition(": ")[2]
            report.add(
                "triggers",
                Severity.WARN,
                f"{listed}: {reason}",
                "its changes are not delivered",
                "give it a primary key",
                code="table-left-out",
            )
        else:
            lacking = installation is None or state != "not captured"
            report.add(
                "triggers",
                Severity.PROBLEM if lacking else Severity.WARN,
                f"{listed}: {state}",
                "changes are not delivered, or not all of them",
                f"wormholectl capture install sqlite://{path} --tables '{','.join(names)}'",
                code="" if lacking else "table-left-out",
            )


def _check_changes(connection: Connection, installation: Installation, report: Report) -> None:
    low, top = connection.execute(f"SELECT min(seq), max(seq) FROM {CHANGES}").fetchone()
    if top is None or top - low >= installation.max_changes:
        report.add(
            "changes",
            Severity.PROBLEM,
            f"{CHANGES} is full: it holds {installation.max_changes} changes",
            "the triggers do not record any more, and the range is lost; the application's writes go on",
            "start the publisher: it reports the range, and the triggers record again",
            code="data-lost",
        )
    else:
        report.add("changes", Severity.OK, f"{CHANGES} holds {top - low} of at most {installation.max_changes} changes")
