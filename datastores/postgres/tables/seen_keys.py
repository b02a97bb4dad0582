"""Since when the keys are there that the log does not contain: a change of a key leaves no trace in what is decoded.

Each look at the server's state notes the primary keys of tables with REPLICA IDENTITY FULL and NOTHING, and where the
log ended then. Whoever changes a key waits for transactions that wrote the table, and they for it: a key that was there
when the log ended at a place was the key of every transaction that was committed behind it, for as long as it is there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

__all__ = ["SeenKeys"]

_MOST_LOST: Final = 1 << 16


class SeenKeys:
    """Those of one log, by the numbers (OIDs) of tables and of the keys' constraints. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._since: dict[int, tuple[int, int]] = {}  # by table: a place, and the key; 0: it was lost

    def note(self, incarnation: int, end: int, keys: Mapping[int, int]) -> None:
        """These are there, and the log ends at ``end``, or ended there a moment later."""
        with self._lock:
            if incarnation != self._incarnation:
                self._since.clear()
                self._incarnation = incarnation
            for table, key in keys.items():
                if self._since.get(table, (0, 0))[1] != key:
                    self._since[table] = end, key
            lost = [table for table, (_, key) in self._since.items() if key and table not in keys]
            self._since.update((table, (end, 0)) for table in lost)
            if len(self._since) - len(keys) > _MOST_LOST:
                self._since = {table: since for table, since in self._since.items() if since[1]}

    def was_there(self, table: int, key: int, place: int) -> bool | None:
        """Whether a table had the key that it has now (0: none) in a transaction that is committed at ``place``;
        ``None``: nothing shows it."""
        with self._lock:
            since, seen = self._since.get(table, (0, -1))
        if seen == key:
            return since <= place
        return False if seen > 0 and not key else None
