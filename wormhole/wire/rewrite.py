# cython: boundscheck=False, wraparound=False
"""Leaves out columns of encoded updates, or replaces their values by NULL or a hash. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from wormhole.model.errors import DecodeError

__all__ = ["DROP", "HASH", "KEEP", "NULL", "rewritten"]

KEEP, DROP, NULL, HASH = range(4)
"""The plan for a column: it is sent, left out, sent as NULL, or sent as a hash."""

# Private copies of the constants: the .pxd makes C integers of them.
_KEEP: Final = 0
_NULL: Final = 2
_HASH: Final = 3

_NULL_VALUE: Final = b"\x02\x40\x01"  # its length, and `null` of Value


def rewritten(
    blob: bytes,
    ends: array[int],
    schema_index: array[int],
    plans: Sequence[bytes | None],
    kept: Sequence[int] | None,
    hashed: Callable[[bytes], bytes],
) -> tuple[bytes, array[int]]:
    """``blob`` and ``ends`` of a :class:`~wormhole.model.segment.Run`, rewritten for receivers that may not see all of
    it.

    ``plans``: by schema ordinal, one of :data:`KEEP`, :data:`DROP`, :data:`NULL` and :data:`HASH` for each of its
    columns; ``None``: all are kept. ``kept``: ordinals of the updates that are wanted, ``None``: all. The other updates
    become empty, so that ordinals stay as they are. ``hashed``: returns for a serialized ``Value`` the one to send in
    its place; called once for equal values.

    Raises :class:`~wormhole.model.errors.DecodeError` for an update that has other values than its schema, or a field
    of a later release, which could hold a hidden value.
    """
    n = len(ends)
    in_ends = ends
    new_ends = array("I", bytes(4 * n))
    out_ends = new_ends
    wanted = bytearray(n) if kept is not None else bytearray(b"\x01") * n
    if kept is not None:
        for i in kept:
            wanted[i] = 1
    flags = wanted
    many = len(schema_index) > 1
    index = schema_index
    plan = plans[schema_index[0] if len(schema_index) else 0]
    known: dict[bytes, bytes] = {}
    out = bytearray()
    begin = 0
    for i in range(n):
        end = in_ends[i]
        if flags[i]:
            if many:
                plan = plans[index[i]]
            if plan is None:
                out += blob[begin:end]
            else:
                _add_row(out, blob, begin, end, plan, known, hashed)
        out_ends[i] = len(out)
        begin = end
    return bytes(out), new_ends


def _add_row(
    out: bytearray,
    view: bytes,
    at: int,
    end: int,
    plan: bytes,
    known: dict[bytes, bytes],
    hashed: Callable[[bytes], bytes],
) -> None:
    """Append the update in the entry from ``at`` to ``end``, by ``plan``."""
    p = view
    codes = plan
    columns = len(plan)
    after = before = 0  # number of values so far
    begin = at
    at += 1  # the entry's own tag and length
    while at < end and p[at] > 0x7F:
        at += 1
    at += 1
    if at > end:
        raise DecodeError("an update breaks off in its length")
    copied = begin  # the bytes before it are in `out`, or left out
    start = len(out)
    head = at - begin
    while at < end:
        field = at
        tag = p[at]
        at += 1
        length = 0
        shift = 0
        while True:
            if at >= end or shift > 28:
                raise DecodeError(f"an update breaks off in field {tag >> 3}")
            byte = p[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if tag == 0x08 or tag == 0x38:  # op, too_large
            continue
        stop = at + length
        if stop > end:
            raise DecodeError(f"an update breaks off in field {tag >> 3}")
        if tag == 0x1A or tag == 0x22:  # after, before
            if tag == 0x1A:
                number = after
                after += 1
            else:
                number = before
                before += 1
            if number >= columns:
                raise DecodeError(f"an update has more values than the {columns} columns of its schema")
            code = codes[number]
            if code != _KEEP:
                if copied < field:
                    out += view[copied:field]
                copied = stop
                if code == _NULL:
                    out.append(tag)
                    out += _NULL_VALUE
                elif code == _HASH:
                    out.append(tag)
                    out += _hashed(view[at:stop], known, hashed)
        elif tag != 0x12 and tag != 0x2A and tag != 0x32:  # key, old_key, key_end
            raise DecodeError(
                f"an update has field {tag >> 3}, which this release does not know and could hold a masked value",
                hint="install the release that wrote it",
            )
        at = stop
    if (after and after != columns) or (before and before != columns):
        raise DecodeError(f"an update has {after} and {before} values for the {columns} columns of its schema")
    if copied < end:
        out += view[copied:end]
    # The new length is written over the old one if both have as many bytes.
    size = len(out) - start - head
    rest = size
    at = start + 1
    last = start + head - 1
    while at < last and rest > 0x7F:
        out[at] = rest & 0x7F | 0x80
        rest >>= 7
        at += 1
    if at == last and rest <= 0x7F:
        out[at] = rest
        return
    prefix = bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    out[start + 1 : start + head] = prefix


def _hashed(value: bytes, known: dict[bytes, bytes], hashed: Callable[[bytes], bytes]) -> bytes:
    """Length and bytes of the value to send in place of ``value``. Its length fits one byte."""
    found = known.get(value)
    if found is None:
        made = hashed(value)
        found = known[value] = bytes((len(made),)) + made
    return found
