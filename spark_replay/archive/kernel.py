# cython: boundscheck=False, wraparound=False
"""The loops over single updates between archive columns, batch bodies and runs. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from typing import Any, Final

__all__ = ["boundaries", "framed", "grouped"]

# A place in wormhole.wire.columns has this many bytes, and its `inside` is there. The .pxd declares C integers.
_PLACE: Final = 25
_INSIDE: Final = 20


def boundaries(
    places: Any, numbers: Any, sources: Any, ends: Any, stops: array[int], limit: int, whole: bool
) -> list[int]:
    """Where to cut rows into pieces that can be runs: ordinals of rows that begin one, the first row's aside.

    A piece has one incarnation and one place per transaction: rows of a transaction that was not finished there end it.
    Else it ends at the first of ``stops`` (ordinals, where a datamarker lies) at half of ``limit`` bytes, or at the
    first transaction's end at ``limit``. ``ends[i + 1]``: where row i ends. ``whole``: every row is a transaction's
    end.
    """
    cuts: list[int] = []
    place = places
    number = numbers
    source = sources
    end = ends
    stop = stops
    n = len(numbers)
    stopping = len(stops)
    s = 0
    start = end[0]
    for i in range(1, n):
        at = i * _PLACE
        before = at - _PLACE
        same = number[i] == number[i - 1] and source[i] == source[i - 1]
        inside = place[at + _INSIDE] != 0
        cut = not whole and place[before + _INSIDE] != 0 and not (inside and same)
        for k in range(4):
            if place[at + k] != place[before + k]:
                cut = True
        while s < stopping and stop[s] < i:
            s += 1
        size = end[i] - start
        if (size >= limit and (whole or inside or not same)) or (2 * size >= limit and s < stopping and stop[s] == i):
            cut = True
        if cut:
            cuts.append(i)
            start = end[i]
    return cuts


def framed(data: Any, ends: Any, begin: int, stop: int) -> tuple[bytes, array[int]]:
    """Updates ``begin`` to ``stop`` as ``BatchBody.updates`` entries, each with its field tag and length, and where
    they end.

    ``data``: the bytes of the updates; ``ends[i]``: where update i begins in it, and the one before ends.
    """
    end = ends
    count = stop - begin
    out_ends = array("I", bytes(4 * count))
    out = out_ends
    size = 0
    for i in range(count):
        length = end[begin + i + 1] - end[begin + i]
        size += length + 2
        while length > 0x7F:
            length >>= 7
            size += 1
    made = bytearray(size)
    view = data
    blob = made
    at = 0
    for i in range(count):
        first = end[begin + i]
        length = end[begin + i + 1] - first
        blob[at] = 0x0A
        at += 1
        size = length
        while size > 0x7F:
            blob[at] = size & 0x7F | 0x80
            at += 1
            size >>= 7
        blob[at] = size
        at += 1
        blob[at : at + length] = view[first : first + length]
        at += length
        out[i] = at
    return bytes(made), out_ends


def grouped(
    places: Any, numbers: Any, sources: Any, indexes: Any, begin: int, stop: int, whole: bool
) -> tuple[array[int], bool, array[int]]:
    """The transactions of rows ``begin`` to ``stop``: the ordinal of each one's first row, counted from ``begin``;
    whether the indexes only count up (see ``wormhole.model.segment.Run.indexes``), and the indexes. ``whole``: as in
    :func:`boundaries`."""
    place = places
    number = numbers
    source = sources
    index_of = indexes
    firsts = array("I")
    found = array("I", bytes(4 * (stop - begin)))
    out = found
    counting = True
    expected = index_of[begin]
    for i in range(begin, stop):
        new = whole or i == begin or number[i] != number[i - 1] or source[i] != source[i - 1]
        if not new:
            at = i * _PLACE
            for k in range(_INSIDE + 1):
                if place[at + k] != place[at - _PLACE + k]:
                    new = True
        if new:
            firsts.append(i - begin)
            if i > begin:
                expected = 0
        index = index_of[i]
        if index != expected:
            counting = False
        expected += 1
        out[i - begin] = index
    return firsts, counting, found
