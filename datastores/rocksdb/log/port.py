"""The ports through which the reader gets files, names of column families, and commit times."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from wormhole.model.position import LogPosition

__all__ = ["Catalogue", "CommitTimes", "LogHistory", "WalFiles"]


class WalFiles(Protocol):
    """The WAL files of one database by number, live or kept.

    Calls may block for a directory scan."""

    def path(self, number: int) -> Path | None:
        """The path of WAL ``number``, live or pinned; ``None``: it does not exist.

        An open file stays that WAL. A recycled file's old content is recognised by the log number in its records.
        """
        ...

    def newer(self, number: int) -> int | None:
        """The smallest known WAL number above ``number``. ``newer(-1)`` is the oldest WAL."""
        ...

    @property
    def reached(self) -> tuple[int, int]:
        """The number of a WAL and a sequence number read from it; (-1, 0): nothing was read. Later files have greater
        sequence numbers."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until a WAL may have grown or appeared, at most ``seconds``."""
        ...


class Catalogue(Protocol):
    """The MANIFEST's column families by number."""

    def name(self, column_family: int) -> str | None:
        """The name of a column family, also of a dropped one. For an unknown number the MANIFEST is read again.

        ``None``: the MANIFEST does not have the number.
        """
        ...

    def timestamp_size(self, column_family: int) -> int | None:
        """The bytes of user-defined timestamp at the end of the family's keys; 0: none. ``None``: the family has its
        program's own comparator, and only the log has the size."""
        ...


class CommitTimes(Protocol):
    """Commit times, from a durable index by place. RocksDB's log does not hold them."""

    def committed_at(self, position: LogPosition, live: bool) -> int:
        """The commit time of the transaction that ends at ``position``, in microseconds since 1970 in UTC.

        ``live``: the reader was at the log's end before it read this transaction, so the time is now. Later calls for
        the position return the same time.
        """
        ...


class LogHistory(Protocol):
    """One incarnation of a log. ``source_id``: the prefix of its transactions' ids."""

    @property
    def incarnation(self) -> int: ...

    @property
    def source_id(self) -> str: ...

    @property
    def files(self) -> WalFiles: ...

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def times(self) -> CommitTimes: ...
