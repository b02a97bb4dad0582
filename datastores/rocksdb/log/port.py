"""The edge between the reader, which decodes, and what keeps files, names and times for it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from wormhole.model.position import LogPosition

__all__ = ["Catalogue", "CommitTimes", "LogHistory", "WalFiles"]


class WalFiles(Protocol):
    """The WAL files of one database by number, wherever they can be read just now.

    Calls may block for a directory scan."""

    def path(self, number: int) -> Path | None:
        """Where WAL ``number`` can be read now, live or pinned; ``None``: not there.

        What is under the path stays that WAL for as long as it is open; a recycled file's old content is recognised by
        the log number in its records.
        """
        ...

    def newer(self, number: int) -> int | None:
        """The smallest known WAL number above ``number``; ``newer(-1)`` is the oldest there is."""
        ...

    @property
    def reached(self) -> tuple[int, int]:
        """Number of a WAL, and a sequence number in it that was read: those of later files are greater. (-1, 0):
        nothing was read."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when a WAL may have grown or appeared, at the latest after ``seconds``."""
        ...


class Catalogue(Protocol):
    """Column families by number, as the MANIFEST has them."""

    def name(self, column_family: int) -> str | None:
        """Name of a column family, dropped ones included; looks into the MANIFEST again when asked for an unknown
        number.

        ``None``: the MANIFEST does not know it.
        """
        ...

    def timestamp_size(self, column_family: int) -> int | None:
        """Bytes of user-defined timestamp at the end of its keys; 0: it has none; ``None``: its comparator is one of
        the program's own, so that only the log has the size."""
        ...


class CommitTimes(Protocol):
    """Commit times, which RocksDB's log does not hold: the durable index from places to times."""

    def committed_at(self, position: LogPosition, live: bool) -> int:
        """Commit time of the transaction that ends at ``position``, microseconds since 1970 in UTC.

        ``live``: the reader had caught up with the log before it read this transaction, so that its time is now.
        Every later call for the same position gives the same time.
        """
        ...


class LogHistory(Protocol):
    """One incarnation of a log. ``source_id``: the left half of its transactions' ids."""

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
