"""What the readers of both SQL servers' logs do alike: they end once, and split what was encoded by shard."""

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
    """A :class:`~wormhole.ports.log_source.LogReader` but for `read`, which holds ``_reading`` until it returns, and
    calls `_release` where the reader was closed meanwhile. ``_failure``: what ends the reader."""

    def __init__(self, tables: _Tables) -> None:
        self._known_tables = tables
        self._open_shards: set[int] = set()  # that the open transaction's earlier pieces went to
        self._failure: WormholeError | None = None
        self._closed = threading.Event()
        self._reading = threading.Lock()
        self._released = False

    @abstractmethod
    def _incarnation(self) -> int:
        """The incarnation of the log that is read."""

    @abstractmethod
    def _give_back(self) -> None:
        """End what the reader holds. Called once."""

    def outlived(self, incarnation: int) -> None:
        """The log is in ``incarnation`` now, as another thread saw: a reader of an earlier one would wait for ever."""
        own = self._incarnation()
        if own < incarnation and self._failure is None:
            self._failure = SourceUnavailable(
                f"the log is in incarnation {incarnation} now, and this reader was opened in {own}",
                hint="it is opened again, which looks whether there is a way to the new one",
            )

    def close(self) -> None:
        """See :class:`~wormhole.ports.log_source.LogReader`."""
        self._closed.set()
        # A read that is going on ends by itself, soon.
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
        """The runs of a piece by shard. ``whole``: it ends with a transaction; ``sources``: of its transactions."""
        runs = runs_of(
            piece,
            self._known_tables.shards,
            self._known_tables.schemas,
            tuple(sources),
            file,
            piece.tx_committed_at_us,
            first_index,
            # A piece that begins with a transaction's first update ends none that was open: that one was rolled back.
            self._open_shards if first_index else set(),
        )
        self._open_shards = set() if whole else self._open_shards | open_shards(piece, list(self._known_tables.shards))
        return runs
