"""Reads the existing rows of the tables whose changes triggers record.

A chunk's snapshot is taken after all transactions before ``not_before`` got their numbers, so it shows them all. Every
transaction in the snapshot gets its number before the end of the log is read. So the snapshot shows nothing beyond that
end.
"""

from __future__ import annotations

import json
from typing import Final

from datastores.postgres.capture.session import CUT_S, LogState, installed, read_state
from datastores.postgres.capture.statements import TRIGGER
from datastores.postgres.capture.url import CaptureUrl
from datastores.postgres.existing_rows.catalogue import described
from datastores.postgres.existing_rows.definition import Definition, Wanted, definition_of
from datastores.postgres.existing_rows.snapshot import Begun, Snapshots, Wait
from datastores.postgres.existing_rows.source import PostgresTables, Session
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, connect
from datastores.postgres.sql_text import quote_identifier, quote_literal
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.datastore import SourceOptions

__all__ = ["CaptureTables"]

_ROOT: Final = (
    "(SELECT m.nspname || '.' || u.relname FROM pg_class u JOIN pg_namespace m ON m.oid = u.relnamespace "
    "WHERE c.relispartition AND u.oid = pg_partition_root(c.oid))"
)


def _is_recorded(schema: str) -> str:
    return (
        "EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace m "
        f"ON m.oid = p.pronamespace WHERE t.tgrelid = c.oid AND t.tgname = {quote_literal(TRIGGER)} AND "
        f"p.proname = 'record' AND m.nspname = {quote_literal(schema)})"
    )


class CaptureSnapshots(Snapshots):
    """Reads the end of the log in a session of its own, because a snapshot's transaction does not see that end."""

    def __init__(self, address: Address, schema: str) -> None:
        self._address = address
        self._schema = schema
        self._other: Connection | None = None

    def begin(self, connection: Connection, lock: str, question: str, not_before: Datamarker, wait: Wait) -> Begun:
        """See :class:`~datastores.postgres.existing_rows.snapshot.Snapshots`."""
        identity = not_before.anchor.id.rpartition(":")[0] if not_before.anchor is not None else ""
        state = self._state()
        end = LogPosition(not_before.order.incarnation, 0, state.place)
        if end < not_before.order or state.number < int(not_before.delivered) or identity not in ("", state.identity):
            raise SourceUnavailable(
                f"the database does not have everything before {not_before}: its log ends at {state.place}",
                hint="a retry follows; a publisher's log and its tables have to come from one database",
            )
        described = self.open(connection, lock, question)[-1]
        return Begun(LogPosition(not_before.order.incarnation, 0, self._state().place), described)

    def await_written(self, connection: Connection, high: LogPosition, wait: Wait) -> None:
        """Return at once: a transaction with a number is in the log."""

    def close(self) -> None:
        """Close the session."""
        if self._other is not None:
            self._other.close()

    def _state(self) -> LogState:
        """The state of the log after every committed transaction got its number."""
        with installed(self._address, self._schema):
            if self._other is None or not self._other.is_open:
                self._other = connect(self._address)
            if read_state(self._other, self._schema).uncut:
                self._other.query(f"SELECT {quote_identifier(self._schema)}.cut()", timeout_s=CUT_S)
            return read_state(self._other, self._schema)


class CaptureTables(PostgresTables):
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the database that ``url`` names."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        given = CaptureUrl.parse(url)
        super().__init__(given.server, options)
        self._schema = given.schema

    def _snapshots(self, address: Address, block: int, segment: int) -> Snapshots:
        return CaptureSnapshots(address, self._schema)

    def _close(self, session: Session, at_once: bool) -> None:
        super()._close(session, at_once)
        assert isinstance(session.snapshots, CaptureSnapshots)
        session.snapshots.close()

    def _check_server(self, session: Session, not_before: Datamarker) -> None:
        """Do nothing: the snapshots compare the database with the place."""

    def _listing(self, session: Session) -> str:
        return (
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
            f"WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {_is_recorded(self._schema)}"
        )

    def _catalogue(self, session: Session, *, estimate: bool = False) -> str:
        known = described(session.connection.version, session.wanted.publication, estimate)
        return (
            f"({known})::jsonb || jsonb_build_object('published', {_is_recorded(self._schema)}, 'via_root', true, "
            f"'root', {_ROOT}, 'filter', null, 'listed', null, 'generated', null)"
        )

    def _defined(self, text: str, wanted: Wanted) -> Definition:
        try:
            row = json.loads(text)
            if row["published"] or row["root"]:
                return definition_of(row, wanted)
            name = f"{row['schema']}.{row['table']}"
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{text:.100} describes no table") from error
        hint = f"run `wormholectl capture install` with --tables {name}"
        refused = Problem(f"{name}: its changes are not recorded", hint, code="table-left-out")
        return Definition(name, refused=refused)
