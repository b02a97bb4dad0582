"""The source of existing rows in an SQL server's tables: the part that all SQL servers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from datastores.common.existing_rows.interruption import Interruption
from datastores.common.existing_rows.reading import ChunkReading, SqlDefinition
from wormhole.model.errors import ChunkUnavailable, SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import shard_of_hash
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.wire.v1 import update_pb2

__all__ = ["AlteredError", "SqlTables", "gone"]

_TRIES: Final = 3
_MOST_SECONDS: Final = 64.0

S = TypeVar("S")
D = TypeVar("D", bound=SqlDefinition)
R = TypeVar("R", bound=ChunkReading[Any])


class AlteredError(Exception):
    """The table was altered while its rows were read. The caller reads them again."""


def gone(table: str) -> UnreadableTable:
    """The error for a table that no longer exists."""
    return UnreadableTable(
        f"there is no table {table} any more: it was dropped or renamed",
        hint="nothing, or start a backfill of the name that it has now",
        code="table-unknown",
    )


class SqlTables(ABC, Generic[S, D, R]):
    """Implements :class:`~wormhole.ports.table_source.TableSource` except for the parts that depend on a server's SQL.

    A session is a connection outside any transaction, with the known facts about its server. The ``high`` of a chunk is
    a place of the log, as text.
    """

    _SLOW_HINT: ClassVar[str]

    def __init__(self, url: str, options: SourceOptions, folder: str) -> None:
        self._url = url
        self._options = options
        self._state_dir = options.state_dir / folder
        self._session: S | None = None
        self._definitions: dict[str, Any] = {}  # the definition of each table as last read
        self._described: dict[str, str] = {}  # the fingerprints last returned to the caller
        self._row_bytes: dict[str, int] = {}
        self._seconds: dict[str, float] = {}  # the longer time limits of tables whose chunks took too long
        self._checked = 0  # the incarnation for which the server was checked
        self._interruption = Interruption()

    # --- the parts that depend on the server ---------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> S:
        """A new session."""

    @abstractmethod
    def _is_open(self, session: S) -> bool:
        """Whether the session's connection is open."""

    @abstractmethod
    def _close(self, session: S, at_once: bool) -> None:
        """Close the session. ``at_once``: close the connection without a message, so that the server ends its work."""

    @abstractmethod
    def _refusing(self, table: str, session: S) -> AbstractContextManager[None]:
        """A context that turns the server's refusals into errors about the table, or `AlteredError`."""

    @abstractmethod
    def _definition(self, session: S, table: str) -> D:
        """The table's definition as last read. Raises :class:`~wormhole.model.errors.UnreadableTable`."""

    @abstractmethod
    def _read_once(
        self, session: S, table: str, limits: ChunkLimits, not_before: Datamarker, read: Callable[[R], None]
    ) -> tuple[R, LogPosition]:
        """Run ``read`` in one snapshot, with the table's definition in that snapshot. Raises `AlteredError`."""

    @abstractmethod
    def _skip(self, session: S, definition: D, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""

    @abstractmethod
    def _same_rows(self, definition: D, missing: Collection[bytes], others: Collection[bytes]) -> list[bytes]:
        """The missing keys that the server regards as equal to keys of ``others``."""

    @abstractmethod
    def _shard_name(self, table: str) -> str:
        """The shard of a table that is not split by the hash of its key."""

    def _last(self, reading: R, until: bytes | None) -> bytes | None:
        """The last key after which the next chunk can begin. Rows after it are left to the next chunk."""
        return next(reversed(reading.rows), None)

    def _check_missing(self, reading: R, keys: Sequence[bytes]) -> None:
        """Check that rows that were not found do not exist. Raises :class:`~wormhole.model.errors.UnreadableTable`."""

    # --- the port ------------------------------------------------------------------------------------------------

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """See the port."""
        bounded = replace(limits, seconds=max(limits.seconds, self._seconds.get(table, 0.0)))
        reading, high = self._read(table, bounded, not_before, lambda reading: reading.run(after, until))
        if reading.timed_out and not reading.rows:
            self._seconds[table] = min(_MOST_SECONDS, 2 * bounded.seconds)
            raise ChunkUnavailable(
                f"{table}: the server found no row within {bounded.seconds:g} s and ended the query",
                hint=f"a retry follows with {self._seconds[table]:g} s; {self._SLOW_HINT}",
            )
        self._seconds.pop(table, None)
        last = self._last(reading, until)
        done = reading.done or (until is not None and last == until)
        return Chunk(reading.definition.schema, reading.rows, str(high), last, done)

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """See the port."""
        reading, high = self._read(table, ChunkLimits(), not_before, lambda reading: reading.run_keys(keys))
        if reading.timed_out:
            raise ChunkUnavailable(f"{table}: the server ended the query for {len(keys)} rows", hint="a retry follows")
        self._check_missing(reading, keys)
        asked = set(keys)
        # The server also returns a row for another spelling of its key (1.0 and 1.00, equal text of a collation). The
        # log has that row under one spelling only.
        rows = {key: update for key, update in reading.rows.items() if key in asked}
        missing, others = asked.difference(rows), reading.rows.keys() - asked
        unclear = self._same_rows(reading.definition, missing, others) if missing and others else []
        return Chunk(reading.definition.schema, rows, str(high), next(reversed(rows), None), True, unclear)

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """See the port."""
        self._interruption.clear()
        try:
            with self._connected() as session, self._refusing(table, session):
                definition = self._definition(session, table)
                self._check_key(definition)
                return self._skip(session, definition, after, rows)
        except AlteredError:
            self._definitions.pop(table, None)
            raise SourceUnavailable(f"{table} is being altered", hint="a retry follows") from None

    def reached(self, high: str, marker: Datamarker) -> bool:
        """See the port. A marker of another incarnation never reaches ``high``."""
        place = LogPosition.parse(high)
        return marker.order.incarnation == place.incarnation and marker.order >= place

    def shard_of(self, table: str, key: bytes) -> str:
        """See the port."""
        sharding = self._options.sharding
        if sharding.by != "hash":
            return self._shard_name(table)
        values = update_pb2.RowKey.FromString(key).values
        if len(values) == 1 and values[0].WhichOneof("kind") == "bytes":
            hashed = values[0].bytes
        else:
            hashed = b"".join(value.SerializeToString() for value in values)
        return shard_of_hash(self._options.log, hashed, sharding.count)

    def interrupt(self) -> None:
        """See the port. The connection is closed, so the server soon ends the statement."""
        self._interruption.set()

    def close(self, at_once: bool = False) -> None:
        """See the port."""
        session, self._session = self._session, None
        if session is not None:
            self._close(session, at_once)

    # --- reading -------------------------------------------------------------------------------------------------

    def _read(
        self, table: str, limits: ChunkLimits, not_before: Datamarker, read: Callable[[R], None]
    ) -> tuple[R, LogPosition]:
        self._interruption.clear()
        for _ in range(_TRIES):
            try:
                with self._connected() as session, self._refusing(table, session):
                    reading, high = self._read_once(session, table, limits, not_before, read)
            except AlteredError:
                self._definitions.pop(table, None)
                continue
            if reading.rows:
                self._row_bytes[table] = reading.row_bytes
            return reading, high
        raise SourceUnavailable(f"{table} is altered again and again", hint="a retry follows")

    def _check_key(self, definition: D) -> None:
        """Check that the present key orders rows as the caller's keys do."""
        table = definition.name
        if self._described.get(table, definition.fingerprint) != definition.fingerprint:
            self._definitions.pop(table, None)
            raise SourceUnavailable(
                f"{table}: its key is another one than when its backfill began", hint="the table begins again"
            )

    @contextmanager
    def _connected(self) -> Iterator[S]:
        """A session outside any transaction. After an error it is closed, so that no transaction stays open."""
        try:
            if self._session is None or not self._is_open(self._session):
                self.close()
                self._session = self._connect()
            yield self._session
        except BaseException as error:
            self.close(at_once=True)
            if isinstance(error, WormholeError) and self._interruption.is_set:
                raise self._interruption.error() from error
            raise
