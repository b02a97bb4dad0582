"""The part that log readers of SQL servers share: closing, and the split of encoded updates by shard."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from datastores.common.encode.piece import Piece
from datastores.common.encode.runs import open_shards, runs_of
from wormhole.model.errors import SourceUnavailable, WormholeError
from wormhole.model.schema import Schema
from wormhole.model.segment import Run

__all__ = ["SqlLogReader"]


class _Tables(Protocol):
    shards: dict[int, str]
    schemas: list[Schema]


class SqlLogReader(ABC):
    """A :class:`~wormhole.ports.log_source.LogReader` without `read`.

    A subclass's `read` holds ``_reading`` until it returns, and calls `_release` if the reader was closed during the
    call. ``_failure``: the error that ends the reader."""

    def __init__(self, tables: _Tables) -> None:
        self._known_tables = tables
        self._open_shards: set[int] = set()  # the shards of earlier pieces of the open transaction
        self._failure: WormholeError | None = None
        self._closed = threading.Event()
        self._reading = threading.Lock()
        self._released = False

    @abstractmethod
    def _incarnation(self) -> int:
        """The incarnation of the log that the reader was opened in."""

    @abstractmethod
    def _give_back(self) -> None:
        """Release the reader's resources. Called once."""

    def outlived(self, incarnation: int) -> None:
        """End a reader of an earlier incarnation, which would wait forever. Another thread calls this when the log is
        in ``incarnation``."""
        own = self._incarnation()
        if own < incarnation and self._failure is None:
            self._failure = SourceUnavailable(
                f"the log is in incarnation {incarnation} now, and this reader was opened in {own}",
                hint="it is opened again, which looks whether there is a way to the new one",
            )

    def close(self) -> None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        self._closed.set()
        # A read in progress soon ends and releases the resources.
        if self._reading.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._reading.release()

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self._give_back()

    def _split(self, piece: Piece, whole: bool, sources: Sequence[str], file: int, first_index: int) -> dict[str, Run]:
        """The runs of a piece by shard. ``whole``: the piece ends with a transaction. ``sources``: the sources of its
        transactions.
        """
        runs = runs_of(
            piece,
            self._known_tables.shards,
            self._known_tables.schemas,
            tuple(sources),
            file,
            piece.tx_committed_at_us,
            first_index,
            # If a piece begins with a transaction's first update, the formerly open transaction was rolled back.
            self._open_shards if first_index else set(),
        )
        self._open_shards = set() if whole else self._open_shards | open_shards(piece, list(self._known_tables.shards))
        return runs
