"""Remembers which records since the last datamarker a store confirmed, to not write them again after a rollback."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from sinks.records.record import Record

__all__ = ["Confirmed"]

_BYTES: Final = 16


class Confirmed:
    """Counts the confirmed records. Records that come again are compared by a digest of their ids, because existing
    rows that are read again may have other changes between them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all records: a datamarker was acknowledged, or another process may have written since."""
        self._number, self._ids = 0, blake2b(digest_size=_BYTES)
        self._left, self._again = 0, self._ids

    def add(self, records: Sequence[Record]) -> None:
        """Count records that the store has confirmed."""
        self._number += len(records)
        self._ids.update(_ids(records))

    def begin_again(self) -> None:
        """Expect all records since the datamarker again, after a rollback."""
        self._left, self._again = self._number, blake2b(digest_size=_BYTES)

    @property
    def passing(self) -> bool:
        """Whether records that were confirmed before the rollback are still expected."""
        return self._left > 0

    def rest(self, records: Sequence[Record]) -> Sequence[Record] | None:
        """The part of ``records`` that was not confirmed before; ``None``: the repeated records differ from before."""
        before = records[: self._left]
        self._left -= len(before)
        self._again.update(_ids(before))
        if self._left == 0 and self._again.digest() != self._ids.digest():
            return None
        return records[len(before) :]


def _ids(records: Sequence[Record]) -> bytes:
    return "".join(f"{record.id}\n" for record in records).encode()
