"""Global transaction ids: MySQL's sets and MariaDB's positions, as text and in the form of the dump command.

MySQL (reference manual, "GTID Sets"; binary form: `Gtid_set::encode` in the server's documentation)::

    text     := [part ("," part)*]                 part := uuid (":" (tag | interval))+      interval := n | n "-" m
    untagged := count (8) source*                  source := uuid (16) intervals (8) (first (8) end (8))*
    tagged   := 01 count (6) 01 source*            source := uuid (16) tag-length tag intervals (8) (first (8) end (8))*

A tag (8.3 and later) applies to the intervals after it. ``end`` is one past the last number. Integers are little
endian; a tag's length is a `Cursor.varint`. A server without tags cannot read the tagged form, so a set without tags is
always sent in the untagged form.

MariaDB: ``domain-server-sequence`` per domain. Sequence numbers of a domain only grow.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from datastores.mysql.decode.cursor import Cursor
from wormhole.model.errors import DecodeError, PositionError

__all__ = ["MAX_NUMBER", "GtidSet", "MariaPosition", "source_text"]

MAX_NUMBER: Final = (1 << 63) - 2
"""The largest number of a transaction."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL: Final = re.compile(r"([0-9]{1,19})\s*(?:-\s*([0-9]{1,19}))?")
_MARIA: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")
_TAGGED: Final = 1
_COUNT_MASK: Final = (1 << 56) - 1


def source_text(uuid: bytes, tag: str = "") -> str:
    """A GTID's source from 16 bytes and a tag: ``uuid`` or ``uuid:tag``."""
    digits = uuid.hex()
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return f"{text}:{tag}" if tag else text


class GtidSet:
    """A set of MySQL GTIDs. A source is ``uuid`` or ``uuid:tag``, in lower case."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        # Bounds per source, ascending: first, end, first, end, ... A number is in the set if an odd number of bounds is
        # at or below it.
        self._bounds: dict[str, list[int]] = {}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read the text of a set. White space and empty parts are ignored. Raises :class:`PositionError`."""
        found = cls()
        for part in text.split(","):
            words = [word.strip().lower() for word in part.split(":")]
            uuid = words.pop(0)
            if not uuid and not words:
                continue
            if not _UUID.fullmatch(uuid) or not words:
                raise PositionError(f"{part.strip()[:80]!r} is no part of a GTID set: it has to be uuid:1-5:7")
            source = uuid
            for word in words:
                if interval := _INTERVAL.fullmatch(word):
                    first = int(interval[1])
                    last = int(interval[2] or first)
                    if not 0 < first <= last <= MAX_NUMBER:
                        raise PositionError(f"GTID set: the interval {word} of {source} is out of range or backwards")
                    found.add(source, first, last)
                elif _TAG.fullmatch(word):
                    source = f"{uuid}:{word}"
                else:
                    raise PositionError(f"GTID set: {word[:80]!r} after {source} is neither an interval nor a tag")
        return found

    @classmethod
    def decode(cls, data: bytes) -> GtidSet:
        """Read the tagged or the untagged form from all of ``data``. Raises :class:`DecodeError` with the field."""
        cursor = Cursor(data, "GTID set")
        header = cursor.number(8, "number of sources")
        form, count = header >> 56, header & _COUNT_MASK
        if form == _TAGGED:
            count >>= 8
        elif form:
            raise DecodeError(f"GTID set: form {form} is unknown")
        found = cls()
        for _ in range(count):
            uuid = cursor.take(16, "uuid")
            tag = cursor.text(cursor.varint("length of the tag"), "tag") if form == _TAGGED else ""
            if tag and not _TAG.fullmatch(tag):
                raise DecodeError(f"GTID set: {tag[:80]!r} is no tag")
            source = source_text(uuid, tag)
            last = 0
            for _ in range(cursor.number(8, "number of intervals")):
                first, end = cursor.number(8, "first number"), cursor.number(8, "last number")
                if not last < first < end <= MAX_NUMBER + 1:
                    raise DecodeError(f"GTID set: the interval {first} to {end} of {source} is out of order")
                found.add(source, first, end - 1)
                last = end
        if cursor.left:
            raise DecodeError(f"GTID set: {cursor.left} bytes follow the last source")
        return found

    def encode(self) -> bytes:
        """The form for ``COM_BINLOG_DUMP_GTID``: tagged if the set has tags, else untagged."""
        tagged = any(":" in source for source in self._bounds)
        count = len(self._bounds)
        out = bytearray(struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count))
        for source, bounds in sorted(self._bounds.items()):
            uuid, _, tag = source.partition(":")
            out += bytes.fromhex(uuid.replace("-", ""))
            if tagged:
                out.append(len(tag) << 1)
                out += tag.encode()
            out += struct.pack(f"<{1 + len(bounds)}Q", len(bounds) // 2, *bounds)
        return bytes(out)

    def add(self, source: str, first: int, last: int | None = None) -> None:
        """Add the numbers from ``first`` to ``last`` (inclusive; by default ``first``)."""
        end = (first if last is None else last) + 1
        bounds = self._bounds.setdefault(source, [])
        if bounds and bounds[-1] == first:  # the usual case: the next transaction of a source
            bounds[-1] = end
            return
        low, high = bisect_left(bounds, first), bisect_right(bounds, end)
        bounds[low:high] = [first] * (low % 2 == 0) + [end] * (high % 2 == 0)

    def contains(self, source: str, number: int) -> bool:
        """Whether the transaction is in the set."""
        return bisect_right(self._bounds.get(source, ()), number) % 2 == 1

    def issubset(self, other: GtidSet) -> bool:
        """Whether every GTID of this set is also in ``other``."""
        return not self.subtract(other)

    def subtract(self, other: GtidSet) -> GtidSet:
        """A new set with the GTIDs of this set that are not in ``other``."""
        rest = GtidSet()
        for source, bounds in self._bounds.items():
            left = list(bounds)
            for first, last in other.intervals(source):
                low, high = bisect_left(left, first), bisect_right(left, last + 1)
                left[low:high] = [first] * (low % 2) + [last + 1] * (high % 2)
            if left:
                rest._bounds[source] = left
        return rest

    def union(self, other: GtidSet) -> GtidSet:
        """A new set with the GTIDs of both sets."""
        both = GtidSet()
        both._bounds = {source: list(bounds) for source, bounds in self._bounds.items()}
        for source in other.sources():
            for first, last in other.intervals(source):
                both.add(source, first, last)
        return both

    def sources(self) -> list[str]:
        """The sources that have a GTID in the set, in the order of the text."""
        return sorted(self._bounds)

    def intervals(self, source: str) -> Iterator[tuple[int, int]]:
        """First and last number of each interval of this source, ascending."""
        bounds = self._bounds.get(source, ())
        return ((bounds[i], bounds[i + 1] - 1) for i in range(0, len(bounds), 2))

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        """The text as MySQL prints it, without line breaks."""
        parts: list[str] = []
        before = ""
        for source in self.sources():
            uuid, _, tag = source.partition(":")
            words = [f"{first}-{last}" if last > first else str(first) for first, last in self.intervals(source)]
            text = ":".join([tag, *words] if tag else words)
            if uuid == before:
                parts[-1] += f":{text}"
            else:
                parts.append(f"{uuid}:{text}")
            before = uuid
        return ",".join(parts)

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"


class MariaPosition:
    """The last GTID of each domain, which is a place in MariaDB's log."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    @classmethod
    def parse(cls, text: str) -> MariaPosition:
        """Read a text such as ``0-1-17,1-2-5`` with one GTID per domain. Raises :class:`PositionError`."""
        found = cls()
        for part in text.split(",") if text.strip() else ():
            match = _MARIA.fullmatch(part.strip())
            if match is None:
                raise PositionError(f"{part.strip()[:80]!r} is no MariaDB GTID: it has to be domain-server-sequence")
            domain, server_id, sequence = (int(number) for number in match.groups())
            if domain >> 32 or server_id >> 32 or sequence >> 64:
                raise PositionError(f"MariaDB GTID {part.strip()}: a number is out of range")
            if domain in found._last:
                raise PositionError(f"MariaDB GTID position {text[:80]!r}: domain {domain} is there twice")
            found.advance(domain, server_id, sequence)
        return found

    def advance(self, domain: int, server_id: int, sequence: int) -> None:
        """Make this the last GTID of its domain."""
        self._last[domain] = (server_id, sequence)

    def covers(self, domain: int, sequence: int) -> bool:
        """Whether the transaction is at or before this position."""
        last = self._last.get(domain)
        return last is not None and sequence <= last[1]

    def domains(self) -> dict[int, tuple[int, int]]:
        """Server id and sequence number by domain."""
        return dict(self._last)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{sequence}" for domain, (server, sequence) in sorted(self._last.items()))
