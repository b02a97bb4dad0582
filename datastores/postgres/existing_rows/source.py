"""The tables of a PostgreSQL database as a source of existing rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

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
from datastores.postgres.existing_rows.interruption import Interruption
from datastores.postgres.existing_rows.keys import above, among, literals_of, same, up_to
from datastores.postgres.existing_rows.reading import CANCELED, Reading, copied_key, timeout, unasked_rows
from datastores.postgres.existing_rows.snapshot import Snapshots
from datastores.postgres.history.delivered_transactions import delivered_transactions
from datastores.postgres.history.incarnations import Incarnations
from datastores.postgres.server.address import Address, parse
from datastores.postgres.server.connection import Connection, ServerError, connect, understood
from datastores.postgres.sql_text import quote_identifier, quote_literal, sql_name
from wormhole.model.errors import ChunkUnavailable, DecodeError, SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import shard_of_hash
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits, ScannedTable
from wormhole.wire.v1 import update_pb2

__all__ = ["PostgresTables"]

_LISTED_AT_ONCE: Final = 200
_LISTING_S: Final = 60.0
_TRIES: Final = 3
_MOST_SECONDS: Final = 64.0
_KEYS_AT_ONCE: Final = 200
_SKIP_S: Final = 2.0
_SKIP_BYTES: Final = 1 << 20

_GONE: Final = frozenset({"42P01", "3F000"})
_DENIED: Final = "42501"
_LOCKED: Final = "55P03"
_ALTERED: Final = frozenset({"42703", "42809", "42704"})
_NO_VALUE: Final = ("22", "23")  # classes: a literal that its type does not have
_SERVER: Final = (
    "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), "
    "pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8), "
    "pg_catalog.current_setting('wal_block_size'), "
    "(SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'), current_user"
)


class _AlteredError(Exception):
    """The table was altered while its rows were read: they are read again."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A connection and whose it is."""

    connection: Connection
    system: str
    timeline: int
    wanted: Wanted
    snapshots: Snapshots


class PostgresTables:
    """Implements :class:`~wormhole.ports.table_source.TableSource` for the database that ``url`` names.

    A chunk's ``high`` is the text of a place: incarnation, 0 and LSN.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url = url
        self._options = options
        self._state_dir = options.state_dir / "postgres"
        self._delivered = delivered_transactions(self._state_dir)
        self._address: Address | None = None
        self._session: _Session | None = None
        self._known: dict[str, tuple[str, Definition]] = {}  # with the catalogue's text that each was made of
        self._described: dict[str, str] = {}  # fingerprints that the caller was given last
        self._row_bytes: dict[str, int] = {}
        self._seconds: dict[str, float] = {}  # tables whose chunks took too long, and the time they get
        self._checked = 0  # the incarnation whose server this one is
        self._interruption = Interruption()

    # --- the port ------------------------------------------------------------------------------------------------

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> list[ScannedTable]:
        """See the port. What the publication does not have is listed where somebody names it."""
        self._interruption.clear()
        with self._connected() as session:
            query = session.connection.query
            rows = query(published(session.wanted.publication), timeout_s=_LISTING_S)
            names = {f"{schema}.{table}": (schema or "", table or "") for schema, table in rows}
            for name in named:
                schema, _, table = name.partition(".")
                names.setdefault(name, (schema, table))
            chosen = [names[name] for name in sorted(names) if wanted(name)]
            question = described(session.connection.version, session.wanted.publication, estimate=True)
            found: list[Definition] = []
            for begin in range(0, len(chosen), _LISTED_AT_ONCE):
                some = chosen[begin : begin + _LISTED_AT_ONCE]
                among_them = ", ".join(f"({quote_literal(schema)}, {quote_literal(table)})" for schema, table in some)
                texts = query(
                    f"SELECT {question} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608
                    f"WHERE (n.nspname, c.relname) IN ({among_them})",
                    timeout_s=_LISTING_S,
                )
                found += [_defined(text or "", session.wanted) for (text,) in texts]
                found += map(without_name, filter(session.connection.encoding.is_shown, map(".".join, some)))
        self._described.update((one.name, one.fingerprint) for one in found if not one.refused)
        return sorted(map(_scanned, found), key=lambda table: table.name)

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port."""

        def read(reading: Reading) -> None:
            definition = reading.definition
            end = "" if until is None else up_to(definition.key, _literals(definition, until))
            reading.run(None if after is None else _literals(definition, after), end)

        bounded = replace(limits, seconds=max(limits.seconds, self._seconds.get(table, 0.0)))
        reading, high = self._read(table, bounded, not_before, read)
        if reading.timed_out and not reading.rows:
            self._seconds[table] = min(_MOST_SECONDS, 2 * bounded.seconds)
            raise ChunkUnavailable(
                f"{table}: the server found no row within {bounded.seconds:g} s and ended the query",
                hint=f"it is tried again with {self._seconds[table]:g} s; see that the index of its key is valid, and "
                "vacuum a table of which most rows were deleted",
            )
        self._seconds.pop(table, None)
        last = next(reversed(reading.rows), None)
        done = reading.done or (until is not None and last == until)
        return Chunk(reading.definition.schema, reading.rows, str(high), last, done)

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""

        def read(reading: Reading) -> None:
            definition = reading.definition
            for begin in range(0, len(keys), _KEYS_AT_ONCE):
                some = [_literals(definition, key) for key in keys[begin : begin + _KEYS_AT_ONCE]]
                reading.run_keys(among(definition.key, some), len(some))
                if reading.timed_out:
                    return

        reading, high = self._read(table, ChunkLimits(), not_before, read)
        if reading.timed_out:
            raise ChunkUnavailable(
                f"{table}: the server ended the query for {len(keys)} rows", hint="it is tried again"
            )
        asked = set(keys)
        # Another spelling of a key (1.0 and 1.00, a collation's equals) is the same row, with another key in the log.
        rows = {key: update for key, update in reading.rows.items() if key in asked}
        unclear = self._respelled(reading.definition, asked.difference(rows), reading.rows.keys() - asked)
        return Chunk(reading.definition.schema, rows, str(high), next(reversed(rows), None), True, unclear)

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        self._interruption.clear()
        try:
            with self._connected() as session, self._refusing(table, session):
                return self._skip(session, self._definition(session, table), after, rows)
        except _AlteredError:
            self._known.pop(table, None)
            raise SourceUnavailable(f"{table} is being altered", hint="it is tried again") from None

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port. No marker of another incarnation ever does."""
        place = LogPosition.parse(high)
        return marker.order.incarnation == place.incarnation and marker.order >= place

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

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        sharding = self._options.sharding
        if sharding.by != "hash":
            return shard_name(self._options.log, sharding, *table.split(".", 1))
        values = update_pb2.RowKey.FromString(key).values
        if len(values) == 1 and values[0].WhichOneof("kind") == "bytes":
            hashed = values[0].bytes
        else:
            hashed = b"".join(value.SerializeToString() for value in values)
        return shard_of_hash(self._options.log, hashed, sharding.count)

    def interrupt(self) -> None:
        """See the port: the connection is given up, and the server ends the statement by itself soon."""
        self._interruption.set()

    def close(self) -> None:
        """See the port."""
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()

    # --- reading -------------------------------------------------------------------------------------------------

    def _read(
        self, table: str, limits: ChunkLimits, not_before: Datamarker, read: Callable[[Reading], None]
    ) -> tuple[Reading, LogPosition]:
        """``read`` in one snapshot, with the table's definition as it is in it."""
        self._interruption.clear()
        for _ in range(_TRIES):
            try:
                with self._connected() as session, self._refusing(table, session):
                    return self._read_once(session, table, limits, not_before, read)
            except _AlteredError:
                self._known.pop(table, None)
        raise SourceUnavailable(f"{table} is altered again and again", hint="it is tried again")

    def _read_once(
        self,
        session: _Session,
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
            raise _gone(table)
        definition = self._take(session, table, begun.described)
        if definition.partitioned != expected.partitioned:
            raise _AlteredError
        self._check_key(definition)
        reading = Reading(connection, definition, self._options.max_update_bytes, limits, self._row_bytes.get(table, 0))
        try:
            read(reading)
        except DecodeError as error:
            raise UnreadableTable(error.message, hint="report this, with the table's definition") from None
        except ServerError:
            raise
        except SourceUnavailable as error:  # it broke while rows came: a smaller chunk may be read
            raise ChunkUnavailable(error.message, hint=error.hint) from None
        if reading.cut:
            self.close()  # which ends the transaction
        else:
            connection.query("ROLLBACK" if reading.timed_out else "COMMIT")
            session.snapshots.await_written(connection, begun.high, wait)
        if reading.rows:
            self._row_bytes[table] = reading.row_bytes
        return reading, begun.high

    def _skip(self, session: _Session, definition: Definition, after: bytes | None, rows: int) -> bytes | None:
        self._check_key(definition)
        connection = session.connection
        conditions = [] if after is None else [above(definition.key, _literals(definition, after))]
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

    def _respelled(self, definition: Definition, missing: Collection[bytes], others: Collection[bytes]) -> list[bytes]:
        """Which of the missing keys are one of the other rows' for the server."""
        if not missing or not others:
            return []
        there = [_literals(definition, key) for key in others]
        with self._connected() as session:
            return [
                key
                for key in missing
                if session.connection.query(f"SELECT {same(definition.key, _literals(definition, key), there)}")
                == [("t",)]
            ]

    # --- definitions ---------------------------------------------------------------------------------------------

    def _question(self, session: _Session, table: str) -> str:
        schema, _, name = table.partition(".")
        return f"SELECT {described(session.connection.version, session.wanted.publication)} {named(schema, name)}"

    def _definition(self, session: _Session, table: str) -> Definition:
        """As it was last seen."""
        known = self._known.get(table)
        if known is not None:
            return known[1]
        rows = session.connection.query(self._question(session, table))
        if not rows:
            raise _gone(table)
        return self._take(session, table, rows[0][0] or "")

    def _take(self, session: _Session, table: str, text: str) -> Definition:
        """The definition that the catalogue's text makes."""
        known = self._known.get(table)
        if known is not None and known[0] == text:
            return known[1]
        found = _defined(text, session.wanted)
        if found.refused:
            self._known.pop(table, None)
            raise UnreadableTable(found.refused.text, hint=found.refused.hint, code=found.refused.code)
        self._known[table] = text, found
        return found

    def _check_key(self, definition: Definition) -> None:
        """The keys of the caller are in the order that the key has now."""
        if self._described.get(definition.name, definition.fingerprint) != definition.fingerprint:
            self._known.pop(definition.name, None)
            raise SourceUnavailable(
                f"{definition.name}: its key is another one than when its backfill began", hint="the table begins again"
            )

    @contextmanager
    def _refusing(self, table: str, session: _Session) -> Iterator[None]:
        """What the server refuses, of this table."""
        try:
            yield
        except ServerError as error:
            state = error.sqlstate
            if state in _GONE:
                raise _gone(table) from None
            if state in _ALTERED:
                raise _AlteredError from None
            if state == _DENIED:
                schema, _, name = table.partition(".")
                raise UnreadableTable(
                    f"{table}: {error.message}",
                    hint=f"GRANT SELECT ON {sql_name(schema, name)} TO {quote_identifier(session.wanted.account)};",
                    code="account-lacks-rights",
                ) from None
            if state.startswith(_NO_VALUE):
                raise UnreadableTable(
                    f"{table}: a key of the backfill is none of the table's as it is now ({error.message:.200})",
                    hint="start the table's backfill again",
                ) from None
            if state == _LOCKED:
                raise SourceUnavailable(
                    f"{table} is locked by an ALTER, a TRUNCATE or a LOCK TABLE", hint="it is tried again"
                ) from None
            raise ChunkUnavailable(error.message, hint=error.hint) from None

    # --- the server ----------------------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[_Session]:
        """A session outside any transaction; after an error it is closed, so that none stays open."""
        try:
            if self._session is None or not self._session.connection.is_open:
                self.close()
                self._session = self._connect()
            assert self._address is not None
            with understood(self._address):
                yield self._session
        except BaseException as error:
            self.close()
            if isinstance(error, WormholeError) and self._interruption.is_set:
                raise self._interruption.error() from error
            raise

    def _connect(self) -> _Session:
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
                    f"{self._address} is a standby, whose snapshots do not say what they show",
                    hint="name the primary in the log's source; it is tried again",
                    code="copy-not-ready",
                )
            with understood(self._address):
                ((system, timeline, block, segment, account),) = connection.query(_SERVER)
                snapshots = Snapshots(self._delivered, int(block or 0), int(segment or 0))
                number = int(timeline or "0", 16)
            # Rows that a policy hides are an error then.
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
        return _Session(connection, system or "", number, wanted, snapshots)

    def _check_server(self, session: _Session, not_before: Datamarker) -> None:
        """This server's log is the one that ``not_before`` is a place of."""
        wanted = not_before.order.incarnation
        if self._checked == wanted:
            return
        incarnations = Incarnations(state_of(self._options, self._state_dir))
        history = incarnations.find(wanted)
        if history is not None and (history.system, history.timeline) != (session.system, session.timeline):
            raise SourceUnavailable(
                f"{self._address} is on timeline {session.timeline} of system {session.system}, and the log is read "
                f"from timeline {history.timeline} of system {history.system}",
                hint="it is tried again; a publisher's log and its tables have to come from one server",
            )
        self._checked = wanted


def _defined(text: str, wanted: Wanted) -> Definition:
    """Raises ``ValueError`` for what no server answers."""
    try:
        return definition_of(json.loads(text), wanted)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{text:.100} describes no table") from error


def _scanned(definition: Definition) -> ScannedTable:
    return ScannedTable(
        definition.name,
        definition.rows,
        definition.refused,
        definition.fingerprint,
        not definition.refused and definition.portable,
        tuple(column.name for column in definition.schema.columns),
    )


def _literals(definition: Definition, key: bytes) -> list[str]:
    try:
        return literals_of(definition.key, key)
    except ValueError as error:
        raise UnreadableTable(
            f"{definition.name}: a key of the backfill is none of the table's as it is now ({error!s:.200})",
            hint="start the table's backfill again",
        ) from error


def _gone(table: str) -> UnreadableTable:
    return UnreadableTable(
        f"there is no table {table} any more: it was dropped or renamed",
        hint="nothing, or start a backfill of the name that it has now",
        code="table-unknown",
    )
