"""The replication ids of a log's readers. Each open reader has its own: a second dump with the same id ends the first.

(Measured on MariaDB. MySQL compares the uuid that a replica shows; ours is new for every reader.)
Readers of other processes: :mod:`datastores.mysql.server.id_claims`.
"""

from __future__ import annotations

import threading
import zlib
from typing import Final, Self

from wormhole.model.errors import SourceUnavailable, UsageError

__all__ = ["ServerIds"]

_DEFAULT_COUNT: Final = 16
_DEFAULT_FIRST: Final = 1_000_000_000
_DEFAULT_RANGES: Final = 62_500_000  # each has sixteen ids: up to 2 * 10^9


class ServerIds:
    """The ids ``first`` to ``last`` (inclusive), each lent to one reader at a time. Thread-safe."""

    def __init__(self, first: int, last: int) -> None:
        self._free = list(range(last, first - 1, -1))
        self._range = f"{first}-{last}"
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return self._range

    @classmethod
    def parse(cls, text: str, log: str) -> Self:
        """``first-last`` as in the configuration; empty: sixteen ids made from the log's name.

        Raises :class:`UsageError`."""
        if not text:
            first = _DEFAULT_FIRST + _DEFAULT_COUNT * (zlib.crc32(log.encode()) % _DEFAULT_RANGES)
            return cls(first, first + _DEFAULT_COUNT - 1)
        head, _, tail = text.partition("-")
        if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in (head, tail)):
            raise UsageError(f"server_ids = {text!r} is no range", hint='write "first-last", for example "4001-4016"')
        first, last = int(head), int(tail)
        if not 0 < first <= last < 1 << 32 or last - first >= 1 << 16:
            raise UsageError(
                f"server_ids = {text!r} is no usable range",
                hint="the ids lie between 1 and 4294967295, first before last, at most 65536 of them",
            )
        return cls(first, last)

    def take(self, avoid: int = 0) -> int:
        """Lend an id that is not ``avoid`` (the server's own). Raises :class:`SourceUnavailable` when all are lent."""
        with self._lock:
            for i in range(len(self._free) - 1, -1, -1):
                if self._free[i] != avoid:
                    return self._free.pop(i)
        raise SourceUnavailable(
            f"all replication ids {self._range} are in use by readers of this publisher",
            hint="give the log a wider range with server_ids, or lower caravans.max",
            code="log-shared",
        )

    def give_back(self, server_id: int) -> None:
        """The reader that had it is closed. It is lent again last: the server may not have noticed yet."""
        with self._lock:
            self._free.insert(0, server_id)
