"""Reads a chunk of a table's rows with several SELECTs in one snapshot, until the chunk's limits are reached."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError as WireError

from wormhole.model.errors import UnreadableTable
from wormhole.model.schema import Schema
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.v1 import update_pb2

__all__ = ["ChunkReading", "KeySql", "SqlDefinition", "key_values"]

_LEAST_SHARE: Final = 8  # a chunk is full when less than one eighth of its bytes is left
_KEYS_AT_ONCE: Final = 200


class SqlDefinition(Protocol):
    """A table's definition for a backfill. ``fingerprint``: changes whenever the columns of the ``key`` change."""

    @property
    def name(self) -> str:
        """The table's name in updates."""

    @property
    def schema(self) -> Schema:
        """The schema of its updates."""

    @property
    def key(self) -> Sequence[Any]:
        """The key's columns."""

    @property
    def fingerprint(self) -> str:
        """See the class."""


class Sized(Protocol):
    """An encoder of rows. ``size``: the bytes of its updates so far."""

    @property
    def size(self) -> int:
        """See the class."""


D = TypeVar("D", bound=SqlDefinition)


def key_values(key: bytes, columns: int) -> Sequence[update_pb2.Value]:
    """The values of a serialized key. Raises ``ValueError`` if it is not a key of this many columns."""
    try:
        values = update_pb2.RowKey.FromString(key).values
    except WireError as error:
        raise ValueError("its bytes are no key") from error
    if len(values) != columns:
        raise ValueError(f"it has {len(values)} values for {columns} columns")
    return values


@dataclass(frozen=True, slots=True)
class KeySql:
    """Keys in a server's SQL. ``literals_of``: returns the values of a serialized key; raises ``ValueError`` or
    ``LookupError`` if the key does not fit the columns. The other functions return conditions."""

    literals_of: Callable[[Sequence[Any], bytes], list[str]]
    above: Callable[[Sequence[Any], Sequence[str]], str]
    up_to: Callable[[Sequence[Any], Sequence[str]], str]
    among: Callable[[Sequence[Any], Iterable[Sequence[str]]], str]

    def literals(self, definition: SqlDefinition, key: bytes) -> list[str]:
        """A key's values in SQL. Raises :class:`~wormhole.model.errors.UnreadableTable`."""
        try:
            return self.literals_of(definition.key, key)
        except (ValueError, LookupError) as error:
            raise UnreadableTable(
                f"{definition.name}: a key of the backfill does not fit the table's present key ({error!s:.200})",
                hint="start the table's backfill again",
            ) from error

    def between(self, definition: SqlDefinition, after: bytes | None, until: bytes | None) -> list[str]:
        """The conditions for the rows above ``after``, up to and including ``until``. ``None``: no bound."""
        return [
            bound(definition.key, self.literals(definition, key))
            for bound, key in ((self.above, after), (self.up_to, until))
            if key is not None
        ]


class ChunkReading(ABC, Generic[D]):
    """Fills ``rows`` up to the limits. ``row_bytes``: the size of a row; 0: unknown.

    ``done``: no row is left. ``timed_out``: the server ended a statement, which may have returned no row. ``cut``: the
    server was still sending unwanted rows, so the connection must be closed.
    """

    def __init__(self, definition: D, sql: KeySql, updates: Sized, limits: ChunkLimits, row_bytes: int) -> None:
        self.definition = definition
        self.limits = limits
        self.row_bytes = row_bytes
        self.rows: dict[bytes, bytes] = {}
        self.done = False
        self.timed_out = False
        self.cut = False
        self._sql = sql
        self._updates = updates

    @abstractmethod
    def _take(self, conditions: Sequence[str], asked: int, seconds: float, most: int = sys.maxsize) -> bool:
        """Run one statement for the next ``asked`` rows; 0: for all rows, at most ``most``. Returns whether another
        statement may return more rows."""

    def _may_go_on(self, key: bytes) -> bool:
        """Whether the next statement can begin after ``key``."""
        return True

    def run(self, after: bytes | None, until: bytes | None) -> None:
        """Read rows after the key ``after``, up to ``until``."""
        deadline = time.monotonic() + self.limits.seconds
        while True:
            left = self.limits.rows - len(self.rows)
            room = self.limits.bytes - self._updates.size
            seconds = deadline - time.monotonic()
            if self.rows and (left <= 0 or room < self.limits.bytes // _LEAST_SHARE or seconds <= 0):
                return
            if self.row_bytes:
                left = min(left, max(1, room // self.row_bytes + 1))
            if not self._take(self._sql.between(self.definition, after, until), left, seconds):
                return
            after = next(reversed(self.rows))
            if not self._may_go_on(after):
                return

    def run_keys(self, keys: Sequence[bytes]) -> None:
        """Read the rows of ``keys``, all of them unless a statement times out."""
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            some = [self._sql.literals(self.definition, key) for key in keys[begin : begin + _KEYS_AT_ONCE]]
            self._take([self._sql.among(self.definition.key, some)], 0, self.limits.seconds, len(some))
            if self.timed_out:
                return

    def _took(self, begin: int, got: int, asked: int, dropped: int) -> bool:
        """Record the result of a statement: ``got`` rows, encoded from the size ``begin`` on, and ``dropped`` unwanted
        rows. Returns the result of `_take`."""
        if got:
            self.row_bytes = max(1, (self._updates.size - begin) // got)
        if self.timed_out:
            return False
        self.done = got < asked and not dropped
        return not self.done and not dropped
