"""Numbers the keys at which the chunks of one table end, so that no key has to be compared here.

Only the datastore compares keys. A range that was read from one boundary ends at a key between this boundary and the
next one, so the key's number is chosen between their numbers. Numbers have the order of the keys, and a flow's progress
consists of intervals of numbers.

In a list with one id a number always means the same key. A list gets another id if its file was lost or damaged,
its table's key changed, or it was thinned out. The number also depends on the key. So a list whose file was restored
from an older copy does not give another key a number that was used after the copy was made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, Protocol

__all__ = ["END", "START", "Boundaries", "BoundaryStore", "MemoryBoundaries"]

START: Final = 0
"""Before the first key."""
END: Final = (1 << 96) - 1
"""After the last key."""

_STEP: Final = 1 << 64  # distance of numbers in a first pass, so that their ranges can be split later
_SPLIT: Final = 6  # a part of a range takes a 64th of its numbers: thousands of parts fit, and ten within each other


class Boundaries:
    """One table's list of boundaries. ``id`` is random. ``fingerprint``: the fingerprint of the table's key
    (``ScannedTable.fingerprint``).
    """

    __slots__ = ("_keys", "_numbers", "fingerprint", "id")

    def __init__(self, list_id: int, fingerprint: str, keys: Mapping[int, bytes] | None = None) -> None:
        self.id = list_id
        self.fingerprint = fingerprint
        self._keys = dict(keys or {})
        self._numbers = [START, *sorted(self._keys), END]

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Mapping[int, bytes]:
        """The keys by number, without :data:`START` and :data:`END`."""
        return self._keys

    def key(self, number: int) -> bytes | None:
        """The key of a number; ``None`` for :data:`START` and :data:`END`. Raises ``KeyError`` for an unknown one."""
        return None if number in (START, END) else self._keys[number]

    def place(self, after: int, until: int, key: bytes) -> int | None:
        """The number that ``key``, between the neighbours ``after`` and ``until``, would get; ``None``: no number is
        free.
        """
        room = until - after
        if room <= 1:
            return None
        part = _STEP if until == END and room > _STEP else max(1, room >> _SPLIT)
        return after + part - int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % max(1, part >> 2)

    def add(self, number: int, key: bytes) -> None:
        """Add ``key`` with the number that :meth:`place` chose."""
        self._keys[number] = key
        insort(self._numbers, number)

    def knows(self, number: int) -> bool:
        """Whether a key has this number."""
        return number in (START, END) or number in self._keys

    def after(self, number: int) -> int:
        """The next higher number."""
        return self._numbers[bisect_right(self._numbers, number)]

    def widened(self, begin: int, end: int) -> tuple[int, int]:
        """The smallest known range that contains the range between two numbers, which may have been forgotten."""
        low = self._numbers[bisect_right(self._numbers, max(begin, START)) - 1]
        return low, self._numbers[min(bisect_left(self._numbers, end), len(self._numbers) - 1)]

    def thin(self, list_id: int) -> None:
        """Forget every second boundary. The list gets another id, because a forgotten number might be given to another
        key later.
        """
        self.id = list_id
        self._keys = {number: self._keys[number] for number in self._numbers[2:-1:2]}
        self._numbers = [START, *self._keys, END]


class BoundaryStore(Protocol):
    """Stores the lists, and the number of the last scan, of one log. Its calls may block; one thread at a time.

    Each call may raise ``OSError``.
    """

    def next_scan(self) -> int:
        """A number higher than all that were returned before, also by earlier processes."""
        ...

    def load(self, table: str) -> Boundaries | None:
        """The table's list; ``None`` if there is none or it is damaged."""
        ...

    def replace(self, table: str, boundaries: Boundaries) -> None:
        """Store the whole list in one step. It is durable when this returns."""
        ...

    def add(self, table: str, boundaries: Boundaries, number: int, key: bytes) -> None:
        """Store that ``key`` was added to the list. It is durable when this returns."""
        ...


class MemoryBoundaries:
    """Lists in memory, for tests and the test kit."""

    def __init__(self) -> None:
        self._scans = 0
        self._lists: dict[str, tuple[int, str, dict[int, bytes]]] = {}

    def next_scan(self) -> int:
        """See :class:`BoundaryStore`."""
        self._scans += 1
        return self._scans

    def load(self, table: str) -> Boundaries | None:
        """See :class:`BoundaryStore`."""
        found = self._lists.get(table)
        return None if found is None else Boundaries(*found)

    def replace(self, table: str, boundaries: Boundaries) -> None:
        """See :class:`BoundaryStore`."""
        self._lists[table] = (boundaries.id, boundaries.fingerprint, dict(boundaries.keys))

    def add(self, table: str, boundaries: Boundaries, number: int, key: bytes) -> None:
        """See :class:`BoundaryStore`."""
        self._lists[table][2][number] = key
