"""The port to the rows that a datastore's tables hold now: what a backfill reads, chunk by chunk, beside the log.

A log shows a commit before a SELECT does (a server that waits for another one between writing its log and making the
commit visible), so that log positions around a SELECT do not say what it saw. Therefore a chunk is read in one
snapshot, and the source answers for what that shows: every transaction before ``not_before``, and none at or after
``high``.

Keys are serialized ``wormhole.wire.v1.RowKey`` messages without a table. They are ordered and compared by the datastore
only; equal rows have equal keys, byte for byte as its log has them.
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
    """A table as a backfill sees it. ``name``: as updates have it. ``rows``: the datastore's own estimate, ``None``
    unknown. ``refused``: why its rows cannot be read in chunks (no key, an engine without transactions, a missing
    privilege, a key that cannot be ordered), with the next step. ``fingerprint``: changes with the key's columns, their
    types and collations; a backfill in progress then begins again. ``portable``: the keys' order is that of integers or
    bytes. ``columns``: the names that its updates have, in order; empty for a refused table, and where the datastore
    declares no columns.
    """

    name: str
    rows: int | None = None
    refused: Problem = NO_PROBLEM
    fingerprint: str = ""
    portable: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """A chunk ends at the first of these: ``rows``, ``bytes`` of encoded updates (one row may be over), ``seconds``
    that the datastore works on it.
    """

    rows: int = 5_000
    bytes: int = 1 << 20
    seconds: float = 1.0


@dataclass(slots=True)
class Chunk:
    """Rows of one table in one snapshot, whole in memory.

    ``rows``: by key, in the order of the keys: a serialized ``wormhole.wire.v1.Update`` with operation READ, its key
    and ``after``, byte for byte as the decoder of the log encodes these values. ``schema``: that of each, the one that
    the log's updates of the table have. ``high``: where in the log the snapshot lies, in the source's own terms
    (:meth:`TableSource.reached`). ``last``: the last key that was looked at, the next chunk's ``after``; ``None`` when
    there was none. ``done``: nothing is left up to ``until``. ``unclear``: keys of :meth:`TableSource.rows` that were
    not found as they are spelled, and whose row is there for the datastore.
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
    """The tables of one log. Used by one thread at a time, which its calls may block; nothing is written.

    No call leaves a transaction open when it returns: an open one and an ALTER would make every query of the user wait.
    Each raises :class:`~wormhole.model.errors.SourceUnavailable` when the datastore cannot be reached, ended the query,
    or does not show ``not_before`` yet after a few seconds (the caller asks again, and for fewer rows after a
    :class:`~wormhole.model.errors.ChunkUnavailable`), and :class:`~wormhole.model.errors.UnreadableTable` when this
    table's rows cannot be read (any more).
    """

    def tables(self, wanted: Callable[[str], bool], named: Collection[str] = ()) -> Sequence[ScannedTable]:
        """The tables whose names are ``wanted``, as they are now, refused ones included; sorted by name.

        ``named``: those of the names that were written out. A datastore that hides tables from accounts without a
        privilege refuses such a table by name, although it does not say whether the table exists.
        """

    def chunk(
        self, table: str, after: bytes | None, until: bytes | None, limits: ChunkLimits, not_before: Datamarker
    ) -> Chunk:
        """The next rows with keys above ``after`` (``None``: from the first on) up to and including ``until``."""

    def rows(self, table: str, keys: Sequence[bytes], not_before: Datamarker) -> Chunk:
        """The rows of these keys; one that does not exist is missing in the answer."""

    def skip(self, table: str, after: bytes | None, rows: int) -> bytes | None:
        """The key of a row about ``rows`` rows behind ``after``, at least one; ``None``: fewer follow, or none of those
        keys can be an ``after``. For ranges that are read in parallel: the rows between are counted in no snapshot, and
        nothing of them is sent.
        """

    def reached(self, high: str, marker: Datamarker) -> bool:
        """Whether ``marker`` lies at or after ``high``: no transaction after it is shown by the chunk's snapshot."""

    def can_ask(self, table: str, key: bytes) -> bool:
        """Whether :meth:`rows` can say if the table has a row of this key, which may be any bytes: another process than
        the datastore named it.
        """

    def shard_of(self, table: str, key: bytes) -> str:
        """The shard that the log's updates of this row belong to."""

    def interrupt(self) -> None:
        """End a call that runs in another thread soon; it raises ``SourceUnavailable``."""

    def close(self) -> None:
        """Give up every connection; idempotent."""
