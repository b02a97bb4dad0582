"""Decodes FLOAT columns: finds the shortest decimal number that gives the single. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["Singles"]

# Adding and subtracting this number rounds to a whole number, half to even, because no bits are left for a fraction.
_ROUND: Final = 6755399441055744.0
_SMALLEST: Final = 1e-12
# From here on not every whole number is a single, so the shortest number may end in zeros.
_LARGEST: Final = 16777216.0
# A number of at least this size rounds to an infinite single.
_OVERFLOW: Final = 3.4028235677973366e38
# Powers of ten that a double holds exactly. A quotient of two exact numbers is rounded once, as by a parser.
_EXACT: Final = 22


class Singles:
    """Converts singles to doubles. Its eight-byte buffer is read both as a number and as bytes."""

    def __init__(self) -> None:
        store = bytearray(8)
        self._store = store
        self._single_view = memoryview(store).cast("f")
        self._double_view = memoryview(store).cast("d")
        self._power_array = array("d", [10.0**i for i in range(_EXACT + 1)])
        self._single = self._single_view
        self._double = self._double_view
        self._powers = self._power_array

    def put(self, out: bytearray, at: int, data: bytes, start: int) -> int:
        """Write the double for the single at ``start`` into the eight bytes of ``out`` at ``at``. Returns the offset
        after it.

        The caller has checked that the bytes of both exist.
        """
        store = self._store
        s = store
        p = data
        o = out
        for i in range(4):
            s[i] = p[start + i]
        x = self._single[0]
        size = -x if x < 0 else x
        result = x
        if _SMALLEST < size < _LARGEST:
            for i in range(_EXACT + 1):
                power = self._powers[i]
                result = (x * power + _ROUND - _ROUND) / power
                self._single[0] = result
                if self._single[0] == x:
                    break
        elif size > 0.0 and x - x == 0.0:  # not zero, not infinite, and not NaN
            result = self._slow(x)
        self._double[0] = result
        for i in range(8):
            o[at + i] = s[i]
        return at + 8

    def _slow(self, x: float) -> float:
        """Find the shortest number by trying each number of significant digits, fewest first."""
        for digits in range(9):
            candidate = float(f"{x:.{digits}e}")
            if abs(candidate) < _OVERFLOW:
                self._single[0] = candidate
                if self._single[0] == x:
                    return candidate
        return x
