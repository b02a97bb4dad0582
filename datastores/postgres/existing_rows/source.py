"""The tables of a PostgreSQL database as a source of existing rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from datastores.common.existing_rows.tables import AlteredError, SqlTables, gone
from datastores.common.kept_state import state_of
from datastores.postgres.decode.tables import shard_name
from datastores.postgres.existing_rows.catalogue import described, named, published
from datastores.postgres.existing_rows.copied_rows import CopiedRows
from datastores.postgres.existing_rows.definition import (
    Definition,
    Wanted,
    definition_of,
    without_name,
)
from datastores.postgres.existing_rows.keys import KEY_SQL, literals_of, same
from datastores.postgres.existing_rows.reading import CANCELED, Reading, copied_key, timeout, unasked_rows
from datastores.postgres.existing_rows.snapshot import Snapshots
from datastores.postgres.history.delivered_transactions import delivered_transactions
from datastores.postgres.history.incarnations import Incarnations
from datastores.postgres.server.address import Address, parse
from datastores.postgres.server.connection import Connection, ServerError, connect, understood
from datastores.postgres.sql_text import quote_identifier, quote_literal, sql_name
from wormhole.model.errors import ChunkUnavailable, DecodeError, SourceUnavailable, UnreadableTable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import ChunkLimits, ScannedTable

__all__ = ["PostgresTables", "Session"]

_LISTED_AT_ONCE: Final = 200
_LISTING_S: Final = 60.0
_SKIP_S: Final = 2.0
_SKIP_BYTES: Final = 1 << 20

_GONE: Final = frozenset({"42P01", "3F000"})
_DENIED: Final = "42501"
_LOCKED: Final = "55P03"
_NO_OPERATOR: Final = "42883"
_ALTERED: Final = frozenset({"42703", "42809", "42704"})
_NO_VALUE: Final = ("22", "23")  # error classes: a literal does not fit its type
_SERVER: Final = (
    "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), "
    "pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8), "
    "pg_catalog.current_setting('wal_block_size'), "
    "(SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'), current_user"
)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection and facts about its server."""

    connection: Connection
    system: str
    timeline: int
    wanted: Wanted
    snapshots: Snapshots


class PostgresTables(SqlTables[Session, Definition, Reading]):
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the database that ``url`` names.

    The ``high`` of a chunk is a place as text: incarnation, 0 and LSN. Each definition is kept with the catalogue's
    text that it was made from.
    """

    _SLOW_HINT = "see that the index of its key is valid, and vacuum a table of which most rows were deleted"

    def __init__(self, url: str, options: SourceOptions) -> None:
        super().__init__(url, options, "postgres")
        self._definitions: dict[str, tuple[str, Definition]] = {}
        self._delivered = delivered_transactions(self._state_dir)
        self._address: Address | None = None

    # --- the port ------------------------------------------------------------------------------------------------

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> list[ScannedTable]:
        """See the port. A table outside the publication is listed if it is in ``named``."""
        self._interruption.clear()
        with self._connected() as session:
            query = session.connection.query
            rows = query(self._listing(session), timeout_s=_LISTING_S)
            names = {f"{schema}.{table}": (schema or "", table or "") for schema, table in rows}
            for name in named:
                schema, _, table = name.partition(".")
                names.setdefault(name, (schema, table))
            chosen = [names[name] for name in sorted(names) if wanted(name)]
            question = self._catalogue(session, estimate=True)
            found: list[Definition] = []
            for begin in range(0, len(chosen), _LISTED_AT_ONCE):
                some = chosen[begin : begin + _LISTED_AT_ONCE]
                among_them = ", ".join(f"({quote_literal(schema)}, {quote_literal(table)})" for schema, table in some)
                texts = query(
                    f"SELECT {question} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
                    f"WHERE (n.nspname, c.relname) IN ({among_them})",
                    timeout_s=_LISTING_S,
                )
                found += [self._defined(text or "", session.wanted) for (text,) in texts]
                found += map(without_name, filter(session.connection.encoding.is_shown, map(".".join, some)))
        self._described.update((one.name, one.fingerprint) for one in found if not one.refused)
        return sorted(map(_scanned, found), key=lambda table: table.name)

    def can_ask(self, table: str, key: bytes) -> bool:
        """See the port."""
        self._interruption.clear()
        with self._connected() as session:
            definition = self._definition(session, table)
            try:
                literals = literals_of(definition.key, key)
            except ValueError:
                return False
            try:
                session.connection.query(f"SELECT {', '.join(literals)}")
            except ServerError as error:
                if error.sqlstate.startswith(_NO_VALUE):
                    return False
                raise
        return True

    # --- reading -------------------------------------------------------------------------------------------------

    def _shard_name(self, table: str) -> str:
        return shard_name(self._options.log, self._options.sharding, *table.split(".", 1))

    def _read_once(
        self,
        session: Session,
        table: str,
        limits: ChunkLimits,
        not_before: Datamarker,
        read: Callable[[Reading], None],
    ) -> tuple[Reading, LogPosition]:
        self._check_server(session, not_before)
        expected = self._definition(session, table)
        self._check_key(expected)
        connection, wait = session.connection, self._interruption.wait
        begun = session.snapshots.begin(connection, expected.source, self._question(session, table), not_before, wait)
        if begun.described is None:
            raise gone(table)
        definition = self._take(session, table, begun.described)
        if definition.partitioned != expected.partitioned:
            raise AlteredError
        self._check_key(definition)
        reading = Reading(connection, definition, self._options.max_update_bytes, limits, self._row_bytes.get(table, 0))
        try:
            read(reading)
        except DecodeError as error:
            raise UnreadableTable(error.message, hint="report this, with the table's definition") from None
        except ServerError:
            raise
        except SourceUnavailable as error:  # the connection broke while rows arrived: a smaller chunk may succeed
            raise ChunkUnavailable(error.message, hint=error.hint) from None
        if reading.cut:
            self.close()  # ends the transaction
        else:
            connection.query("ROLLBACK" if reading.timed_out else "COMMIT")
            session.snapshots.await_written(connection, begun.high, wait)
        return reading, begun.high

    def _skip(self, session: Session, definition: Definition, after: bytes | None, rows: int) -> bytes | None:
        connection = session.connection
        conditions = KEY_SQL.between(definition, after, None)
        while True:
            found: dict[bytes, bytes] = {}
            encoder = CopiedRows(definition.key_table, _SKIP_BYTES)
            connection.query(f"BEGIN READ ONLY; {timeout(_SKIP_S)}; SET LOCAL enable_sort = off")
            try:
                statement = copied_key(definition, conditions, rows - 1)
                for lines in connection.copy_rows(statement, timeout_s=2 * _SKIP_S):
                    encoder.add(lines, found, _SKIP_BYTES)
                    if len(found) > 1:
                        raise unasked_rows(definition.name)
            except ServerError as error:
                if error.sqlstate != CANCELED or rows == 1:
                    raise
                rows = max(1, rows // 4)
                connection.query("ROLLBACK")
            else:
                connection.query("COMMIT")
                return next(iter(found), None)

    def _same_rows(self, definition: Definition, missing: Collection[bytes], others: Collection[bytes]) -> list[bytes]:
        key = definition.key
        there = [KEY_SQL.literals(definition, other) for other in others]
        with self._connected() as session:
            asked = {one: f"SELECT {same(key, KEY_SQL.literals(definition, one), there)}" for one in missing}
            return [one for one, question in asked.items() if session.connection.query(question) == [("t",)]]

    # --- definitions ---------------------------------------------------------------------------------------------

    def _question(self, session: Session, table: str) -> str:
        schema, _, name = table.partition(".")
        return f"SELECT {self._catalogue(session)} {named(schema, name)}"

    def _listing(self, session: Session) -> str:
        """The SELECT for schema and name of the tables whose changes are in the log."""
        return published(session.wanted.publication)

    def _catalogue(self, session: Session, *, estimate: bool = False) -> str:
        """The SQL expression for a table's definition in the catalogue."""
        return described(session.connection.version, session.wanted.publication, estimate)

    def _defined(self, text: str, wanted: Wanted) -> Definition:
        """The definition in the catalogue's text. Raises ``ValueError`` for a malformed text."""
        try:
            return definition_of(json.loads(text), wanted)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{text:.100} describes no table") from error

    def _definition(self, session: Session, table: str) -> Definition:
        """The table's definition as last read."""
        known = self._definitions.get(table)
        if known is not None:
            return known[1]
        rows = session.connection.query(self._question(session, table))
        if not rows:
            raise gone(table)
        return self._take(session, table, rows[0][0] or "")

    def _take(self, session: Session, table: str, text: str) -> Definition:
        """Keep and return the definition in the catalogue's text."""
        known = self._definitions.get(table)
        if known is not None and known[0] == text:
            return known[1]
        found = self._defined(text, session.wanted)
        if found.refused:
            self._definitions.pop(table, None)
            raise UnreadableTable(found.refused.text, hint=found.refused.hint, code=found.refused.code)
        self._definitions[table] = text, found
        return found

    @contextmanager
    def _refusing(self, table: str, session: Session) -> Iterator[None]:
        """Turn the server's refusals in the block into errors about this table."""
        try:
            yield
        except ServerError as error:
            state = error.sqlstate
            if state in _GONE:
                raise gone(table) from None
            if state in _ALTERED:
                raise AlteredError from None
            if state == _DENIED:
                schema, _, name = table.partition(".")
                raise UnreadableTable(
                    f"{table}: {error.message}",
                    hint=f"GRANT SELECT ON {sql_name(schema, name)} TO {quote_identifier(session.wanted.account)};",
                    code="account-lacks-rights",
                ) from None
            if state.startswith(_NO_VALUE):
                raise UnreadableTable(
                    f"{table}: a key of the backfill does not fit the table's present key ({error.message:.200})",
                    hint="start the table's backfill again",
                ) from None
            if state == _NO_OPERATOR:  # an index of arrays or composites may exist without an order of their parts
                raise UnreadableTable(
                    f"{table}: its key has a type without an order ({error.message:.200})",
                    hint="give it another key, whose types have an order",
                ) from None
            if state == _LOCKED:
                raise SourceUnavailable(
                    f"{table} is locked by an ALTER, a TRUNCATE or a LOCK TABLE", hint="a retry follows"
                ) from None
            raise ChunkUnavailable(error.message, hint=error.hint) from None

    # --- the server ----------------------------------------------------------------------------------------------

    def _is_open(self, session: Session) -> bool:
        return session.connection.is_open

    def _close(self, session: Session, at_once: bool) -> None:
        session.connection.close()

    @contextmanager
    def _connected(self) -> Iterator[Session]:
        with super()._connected() as session:
            assert self._address is not None
            with understood(self._address):
                yield session

    def _connect(self) -> Session:
        if self._address is None:
            login = self._options.login
            self._address = parse(
                self._url,
                self._options.log,
                password_file=login.password_file,
                pgpass=login.user_files,
                prompt=login.prompt,
            )
        connection = connect(self._address, interrupt=self._interruption.descriptor)
        try:
            if connection.query("SELECT pg_catalog.pg_is_in_recovery()") == [("t",)]:
                raise SourceUnavailable(
                    f"{self._address} is a standby, whose snapshots have no place in the log",
                    hint="name the primary in the log's source; a retry follows",
                    code="copy-not-ready",
                )
            with understood(self._address):
                ((system, timeline, block, segment, account),) = connection.query(_SERVER)
                snapshots = self._snapshots(self._address, int(block or 0), int(segment or 0))
                number = int(timeline or "0", 16)
            # With this setting a query fails instead of leaving out rows that a policy hides.
            connection.query("SET row_security = off")
        except BaseException:
            connection.close()
            raise
        self._checked = 0
        wanted = Wanted(
            self._options.log,
            self._options.sharding,
            account or "",
            self._address.publication,
            self._options.skip_tables,
            connection.encoding,
        )
        return Session(connection, system or "", number, wanted, snapshots)

    def _snapshots(self, address: Address, block: int, segment: int) -> Snapshots:
        """The snapshots of a session. ``block``, ``segment``: bytes of a page and of a file of the log."""
        return Snapshots(self._delivered, block, segment)

    def _check_server(self, session: Session, not_before: Datamarker) -> None:
        """Check that ``not_before`` is a place of this server's log."""
        wanted = not_before.order.incarnation
        if self._checked == wanted:
            return
        incarnations = Incarnations(state_of(self._options, self._state_dir))
        history = incarnations.find(wanted)
        if history is not None and (history.system, history.timeline) != (session.system, session.timeline):
            raise SourceUnavailable(
                f"{self._address} is on timeline {session.timeline} of system {session.system}, and the log is read "
                f"from timeline {history.timeline} of system {history.system}",
                hint="a retry follows; a publisher's log and its tables have to come from one server",
            )
        self._checked = wanted


def _scanned(definition: Definition) -> ScannedTable:
    return ScannedTable(
        definition.name,
        definition.rows,
        definition.refused,
        definition.fingerprint,
        not definition.refused and definition.portable,
        tuple(column.name for column in definition.schema.columns),
    )
