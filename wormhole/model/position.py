"""Places in a log: positions, their anchors, and datamarkers.

A place always means **next to read**: everything before it was read, nothing at or after it. Every stage
relies on this sentence.

A stored place, the :class:`Datamarker`, has four parts, because no single number has all four uses: ``order`` sorts
within one log, ``delivered`` finds the place in another incarnation or copy of it, ``read_from`` lets a restart see
transactions that were prepared before the place, and ``anchor`` proves that the log is still the same.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from wormhole.model.errors import PositionError

__all__ = ["LOG_BYTES", "Anchor", "Datamarker", "LastAck", "LogPosition", "flow_name"]

LOG_BYTES: Final = "log:"
"""The prefix of an anchor's id if the anchor is a piece of the log instead of a transaction."""

_ORDER: Final = struct.Struct(">IQQ")


@dataclass(slots=True, order=True, unsafe_hash=True)
class LogPosition:
    """A place within one log: ``(incarnation, file, offset)``. Places of one log have a total order. Places of
    different logs are never compared.

    ``incarnation`` counts the histories of the log (a reset or restored server starts the next one), ``file`` is the
    number of the log file and ``offset`` the byte within it. Treated as immutable; not frozen because it is hot.
    """

    incarnation: int
    file: int
    offset: int

    SIZE = _ORDER.size

    def to_bytes(self) -> bytes:
        """Twenty bytes, big endian, whose byte order is the order of the places."""
        return _ORDER.pack(self.incarnation, self.file, self.offset)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_bytes`. Raises :class:`PositionError` for anything but twenty bytes."""
        if len(data) != _ORDER.size:
            raise PositionError(f"a position has {_ORDER.size} bytes, not {len(data)}")
        return cls(*_ORDER.unpack(data))

    def __str__(self) -> str:
        """Text form ``incarnation/file/offset``, read back by :meth:`parse`."""
        return f"{self.incarnation}/{self.file}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises :class:`PositionError`."""
        parts = text.split("/")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise PositionError(
                f"{text!r} is no place in a log", hint="write it as incarnation/file/offset, for example 1/42/32768"
            )
        # Python refuses to convert a number of thousands of digits.
        incarnation, file, offset = (int(part) if len(part) <= 20 else 1 << 64 for part in parts)
        if incarnation >= 1 << 32 or file >= 1 << 64 or offset >= 1 << 64:
            raise PositionError(f"{text!r} is out of range", hint="incarnation has 32 bits, file and offset 64")
        return cls(incarnation, file, offset)


@dataclass(slots=True, unsafe_hash=True)
class Anchor:
    """The last transaction before a place: its id, the CRC32C of its log bytes, and where they begin.

    After a long time without a transaction, an anchor may be a piece of the log instead. Its id then consists of the
    prefix :data:`LOG_BYTES`, the server and its history, and the offset after the piece, joined with ``:``.
    """

    id: str
    checksum: int
    begin: LogPosition

    @property
    def is_of_log_bytes(self) -> bool:
        """Whether the anchor is a piece of the log, not a transaction."""
        return self.id.startswith(LOG_BYTES)

    @property
    def log_bytes_end(self) -> int:
        """The offset after the piece of the log. The datamarker's place may be later: it advances more often."""
        end = self.id.rpartition(":")[2]
        return int(end) if end.isdecimal() else 0


@dataclass(slots=True, unsafe_hash=True)
class Datamarker:
    """A place that may be stored: always at a transaction's end.

    ``delivered``: logical position of everything before the place, in the source's own terms, such as the number of the
    last update before it or a set of transaction ids. ``read_from``: where the oldest transaction begins that is
    prepared but not resolved at the place; without one, equal to ``order``. ``anchor``: ``None`` when no transaction
    before the place is known. ``committed_at_us``: commit time of the last transaction before the place, microseconds
    since 1970 in UTC, 0 if unknown. ``backfill``: the progress of the flow's backfill, empty without one; opaque here
    (``caravan.backfill.progress``). ``shard``: filled in when an application receives the datamarker, so that an
    application with several shards can distinguish them; not part of the place, not stored and not compared.
    """

    order: LogPosition
    delivered: str
    read_from: LogPosition
    anchor: Anchor | None = None
    committed_at_us: int = 0
    backfill: bytes = b""
    shard: str = field(default="", compare=False)

    def is_place_of(self, other: Datamarker) -> bool:
        """Whether both places follow the same updates, perhaps in two histories of the log."""
        return self.delivered == other.delivered if self.delivered or other.delivered else self.order == other.order

    def __str__(self) -> str:
        return f"{self.order} ({self.delivered})" if self.delivered else str(self.order)


class LastAck(NamedTuple):
    """A flow's last acknowledgement: ``move`` is the number of the last move of the datamarker before it, ``order`` the
    place of the acknowledged datamarker. A later acknowledgement is greater.
    """

    move: int
    order: LogPosition


def flow_name(application: str, shard: str) -> str:
    """The text form of a flow everywhere: ``APP/SHARD``."""
    return f"{application}/{shard}"
