"""The port (interface) to the rows that a datastore's tables hold now. A backfill reads them in chunks, beside the log.

A log shows a commit before a SELECT does: a server may wait for a replica between writing its log and making the commit
visible. So log positions around a SELECT do not show what the SELECT saw. Therefore a chunk is read in one snapshot.
The source guarantees that the snapshot shows every transaction before ``not_before``, and none at or after ``high``.

Keys are serialized ``wormhole.wire.v1.RowKey`` messages without a table. Only the datastore orders and compares them. A
row always has the same key, byte for byte as in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.schema import Schema

__all__ = ["Chunk", "ChunkLimits", "ScannedTable", "TableSource"]


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """A table and whether a backfill can read it.

    ``name``: as updates have it. ``rows``: the datastore's own estimate; ``None``: unknown. ``refused``: why its rows
    cannot be read in chunks (no key, an engine without transactions, a missing privilege, a key that cannot be
    ordered), with the next step. ``fingerprint``: changes with the key's columns, their types and collations; a
    backfill in progress then begins again. ``portable``: the keys' order is that of integers or bytes. ``columns``: the
    names in its updates, in order; empty for a refused table, and for a datastore that declares no columns.
    """

    name: str
    rows: int | None = None
    refused: Problem = NO_PROBLEM
    fingerprint: str = ""
    portable: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The limits of a chunk, which ends at the first one that it reaches.

    ``rows``: number of rows. ``bytes``: the bytes of encoded updates, which one row may exceed. ``seconds``: the
    datastore's work.
    """

    rows: int = 5_000
    bytes: int = 1 << 20
    seconds: float = 1.0


@dataclass(slots=True)
class Chunk:
    """Rows of one table in one snapshot, as a whole in memory.

    ``rows``: by key, in the order of the keys, a serialized ``wormhole.wire.v1.Update`` with operation READ, its key
    and ``after``. The values are encoded byte for byte as the log's decoder encodes them. ``schema``: the schema of
    every row, equal to that of the log's updates of the table. ``high``: the place of the snapshot in the log, in the
    source's own terms (:meth:`TableSource.reached`). ``last``: the last key that was examined, which is the ``after``
    of the next chunk; ``None``: no key was. ``done``: no row is left up to ``until``. ``unclear``: keys of
    :meth:`TableSource.rows` that were not found in their given spelling, although the datastore finds a row for them.
    """

    schema: Schema
    rows: dict[bytes, bytes]
    high: str
    last: bytes | None
    done: bool
    unclear: Collection[bytes] = ()

    @property
    def size(self) -> int:
        """Bytes of the updates."""
        return sum(map(len, self.rows.values()))


class TableSource(Protocol):
    """The tables of one log. One thread at a time calls it (except :meth:`interrupt`). A call may block. No call
    writes.

    No call leaves a transaction open when it returns: an ALTER that waits for it would block every query of the table.

    Every call raises :class:`~wormhole.model.errors.SourceUnavailable` when the datastore cannot be reached, ended the
    query, or does not show ``not_before`` yet after a few seconds. The caller then tries again, and requests fewer rows
    after a :class:`~wormhole.model.errors.ChunkUnavailable`. Every call raises
    :class:`~wormhole.model.errors.UnreadableTable` when this table's rows cannot be read (any more).
    """

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """The tables whose names are ``wanted``, as they are now, refused ones included; sorted by name.

        ``named``: the names that were written out in full, without a pattern. A datastore that hides tables from
        accounts without a privilege returns such a name as a refused table, whether or not the table exists.
        """

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """The next rows with keys after ``after`` (``None``: from the first one) up to and including ``until``."""

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """The rows of these keys. A row that does not exist is missing from the chunk."""

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """The key of a row about ``rows`` rows after ``after``, and at least one after it; ``None``: fewer rows follow,
        or none of their keys can be an ``after``.

        Used for ranges that are read in parallel. The rows between are counted without a snapshot, and none of them is
        sent.
        """

    def reached(self, high: str, marker: Datamarker) -> bool:
        """Whether ``marker`` is at or after ``high``. If so, the chunk's snapshot shows no transaction after the
        marker.
        """

    def can_ask(self, table: str, key: bytes) -> bool:
        """Whether :meth:`rows` can decide if the table has a row of this key. The key may be any bytes, because it did
        not come from the datastore.
        """

    def shard_of(self, table: str, key: bytes) -> str:
        """The shard of this row's updates in the log."""

    def interrupt(self) -> None:
        """End a call that runs in another thread soon. That call raises ``SourceUnavailable``."""

    def close(self) -> None:
        """Close every connection; idempotent."""
