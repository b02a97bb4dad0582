"""Decides which updates may be processed at the same time: only updates of different keys. Pure.

The rules:

- updates of one key run one after another, in log order;
- an update that changes its key waits for both keys, and later updates of either wait for it;
- an update without a key waits for everything of its table, and everything of its table after it waits for it;
- a barrier (an operation on many keys: TRUNCATE, DELETE_RANGE) waits for everything before it, and everything after it
  waits for the barrier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

__all__ = ["KeyOrder"]


class KeyOrder:
    """The order of items, which the caller numbers in ascending order. ``ready``: the items that may begin, in order.

    A key is a tuple that begins with its table. A tuple of the table alone means every key of the table.
    """

    __slots__ = ("_barrier", "_blockers", "_followers", "_keys", "_last", "_open", "ready")

    def __init__(self) -> None:
        self.ready: deque[int] = deque()
        self._open: set[int] = set()  # added, not done
        self._last: dict[tuple[Hashable, ...], int] = {}  # newest open item of each key
        self._keys: dict[int, tuple[tuple[Hashable, ...], ...]] = {}
        self._barrier: int | None = None  # newest open barrier
        self._blockers: dict[int, int] = {}  # how many open items an item waits for
        self._followers: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """The number of items that were added and are not done."""
        return len(self._open)

    def add(self, item: int, keys: Iterable[tuple[Hashable, ...]] | None) -> None:
        """Add the next item with the keys that it touches; ``None``: the item is a barrier."""
        before: set[int] = set()
        if keys is None:
            before.update(self._open)
            self._barrier = item
        else:
            touched = tuple(dict.fromkeys(keys))
            if self._barrier is not None:
                before.add(self._barrier)
            for key in touched:
                if len(key) == 1:
                    before.update(one for one, theirs in self._keys.items() if any(mine[:1] == key for mine in theirs))
                else:
                    before.update(self._last[one] for one in (key, key[:1]) if one in self._last)
                self._last[key] = item
            before.discard(item)
            self._keys[item] = touched
        self._open.add(item)
        if before:
            self._blockers[item] = len(before)
            for blocker in before:
                self._followers.setdefault(blocker, []).append(item)
        else:
            self.ready.append(item)

    def done(self, item: int) -> None:
        """Note that the work of an item has ended. Items that waited only for this item become ready."""
        self._open.discard(item)
        for key in self._keys.pop(item, ()):
            if self._last.get(key) == item:
                del self._last[key]
        if self._barrier == item:
            self._barrier = None
        for follower in self._followers.pop(item, ()):
            left = self._blockers[follower] - 1
            if left:
                self._blockers[follower] = left
            else:
                del self._blockers[follower]
                self.ready.append(follower)
