# cython: boundscheck=False, wraparound=False
"""Reads values from the bytes of an encoded update, without an object for each of its fields. Hot: compiled where
possible.

The result equals that of protobuf's own parser for ``wormhole.wire.v1.Update``; a test compares the two. An error
anywhere in a row refuses the whole row, whichever field is read. If a value has several kinds, the last one counts.
Entries that come in several fields are joined. Unknown fields are skipped. A peer can send any bytes, so each length is
checked before it is used.
"""

from __future__ import annotations

from array import array
from decimal import Decimal, InvalidOperation
from struct import Struct
from typing import Final, TypeAlias

from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.values import NAN, UNAVAILABLE, Value

__all__ = ["AFTER", "BEFORE", "KEY", "KEY_END", "OLD_KEY", "Ints"]
__all__ += ["check", "check_decimals", "cut", "decimal_of", "gather", "known", "locate", "named", "one_value", "split"]
__all__ += ["values"]

KEY, AFTER, BEFORE, OLD_KEY, KEY_END = range(2, 7)
"""The fields of an update that hold values."""

Ints: TypeAlias = "array[int] | memoryview"
"""C integers, in an array or in a view of other bytes."""

_AFTER: Final = 3  # the .pxd makes a C integer of it
_BEFORE: Final = 4
_UPDATES: Final = 0x0A  # tag of BatchBody.updates
_DEPTH: Final = 100  # messages and groups inside each other that protobuf accepts; inside a value, one less
_LONGEST: Final = 0x7FFF_FFFF
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_DOUBLE: Final = Struct("<d").unpack
_COMPILED: Final = not __file__.endswith(".py")


def check(data: bytes, begin: int, end: int) -> int:
    """Check that ``data[begin:end]`` is an update. The other functions need bytes that were checked.

    Returns ``op << 1 | large``. ``op``: the number of its operation (32 bits, unsigned). ``large``: 1 if the update was
    too large to have its values. Raises :class:`~wormhole.model.errors.DecodeError` for other bytes.
    """
    if begin < 0 or begin > end or end > len(data):
        raise ValueError(f"an update from {begin} to {end} of {len(data)} bytes")
    p = data
    op = 0
    large = 0
    at = begin
    while at < end:
        tag = p[at]
        at += 1
        if tag > 0x7F or tag < 8:
            tag = _tag(p, at - 1, end)
            at = _number_end(p, at - 1, end)
        kind = tag & 7
        if kind == 2:
            stop = _stop(p, at, end)
            if 0x12 <= tag <= 0x32:  # the fields with values
                _check_value(p, _number_end(p, at, end), stop)
            at = stop
        elif kind == 0:
            stop = _number_end(p, at, end)
            if tag == 0x08:
                op = _number(p, at, stop) & 0xFFFF_FFFF
            elif tag == 0x38:
                large = _number(p, at, stop) != 0
            at = stop
        else:
            at = _passed(p, at, end, tag, _DEPTH)
    return op << 1 | large


def values(data: bytes, begin: int, end: int, field: int) -> tuple[Value, ...]:
    """The values of ``field``. Raises :class:`~wormhole.model.errors.ProtocolError` for a decimal that is no number,
    and for entries whose numbers of names and values differ.
    """
    return tuple(_values(data, begin, end, field))


def named(data: bytes, begin: int, end: int, field: int, names: tuple[str, ...]) -> dict[str, Value] | None:
    """The values of ``field`` by ``names``; ``None`` if there are none at all.

    Raises as :func:`values`, and if the numbers of values and ``names`` differ.
    """
    found = _values(data, begin, end, field)
    count = len(found)
    if not count:
        return None
    if count != len(names):
        raise _other_count(count, len(names))
    row = {}
    for i in range(count):
        row[names[i]] = found[i]
    return row


def _other_count(count: int, columns: int) -> ProtocolError:
    return ProtocolError(
        f"row: {count} values for the {columns} columns of its schema",
        hint="the bytes are damaged or come from a faulty sender: report this",
    )


def known(data: bytes, begin: int, end: int, field: int) -> list[bool]:
    """Whether each value of ``field`` has a kind. A value without a kind changed to content outside the log."""
    p = data
    found = []
    at = begin
    while at < end:
        begin = at
        at = _field_end(p, at, end)
        if _tag(p, begin, end) == (field << 3 | 2):
            begin = _number_end(p, _number_end(p, begin, end), end)
            found.append(_walked(p, begin, at, None, None)[0] != 0)
    return found


def _values(data: bytes, begin: int, end: int, field: int) -> list[Value]:
    p = data
    found = []
    wanted = field << 3 | 2
    at = begin
    while at < end:
        tag = p[at]
        if tag & 0x87 == 2:
            at += 1
            stop = _stop(p, at, end)
            if tag == wanted:
                found.append(_value(p, _number_end(p, at, end), stop))
            at = stop
        else:
            begin = at
            at = _field_end(p, at, end)
            if _tag(p, begin, end) == wanted:
                begin = _number_end(p, _number_end(p, begin, end), end)
                found.append(_value(p, begin, at))
    return found


def gather(data: bytes, begin: int, end: int, keys: list[list[Value]], rows: list[list[Value]]) -> bool:
    """Add each value of KEY to its list of ``keys``, and each of AFTER to its list of ``rows``.

    Returns whether each list got a value, and the update has no key besides KEY. If not, the lists must not be used.
    Raises as :func:`values`.
    """
    p = data
    k = r = 0
    at = begin
    while at < end:
        tag = p[at]
        at += 1
        if tag == 0x08:
            at = _number_end(p, at, end)
            continue
        if tag != 0x12 and tag != 0x1A and tag != 0x22:  # KEY, AFTER, BEFORE
            return False
        stop = _stop(p, at, end)
        if tag != 0x22:
            value = _value(p, _number_end(p, at, end), stop)
            if value is UNAVAILABLE:
                return False
            if tag == 0x12:
                if k == len(keys):
                    return False
                column = keys[k]
                k += 1
            else:
                if r == len(rows):
                    return False
                column = rows[r]
                r += 1
            column.append(value)
        at = stop
    return k == len(keys) and r == len(rows)


def locate(
    data: bytes,
    spans: Ints,
    first: int,
    count: int,
    bases: Ints,
    widths: Ints,
    kinds: bytearray,
    numbers: Ints,
    sizes: Ints,
    ops: bytearray,
    falls_back: bool = True,
) -> None:
    """Write the places of the values of ``count`` updates into arrays, column by column.

    Value ``j`` of field ``f`` of update ``i`` has the cell ``(bases[f] + j) * count + i``. The arrays contain zeros
    before the call.

    ``spans``: the result of :func:`split`. ``first``: the index of the first update in it.
    ``bases``: the first column of each field; below 0: the field's values are not wanted.
    ``widths``: the number of values that each field has, if it has any.
    ``kinds``: the field of ``Value`` that is set; ``unavailable``: none is; 0: there is no value.
    ``numbers``: a number as 64 bits. For entries, the place where the ``Value`` begins. For other values, the place
    where the content begins; its length is in ``sizes``.
    ``ops``: the number of each update's operation; 0 if it does not fit into a byte.
    ``falls_back``: the BEFORE of an update without AFTER is taken as its AFTER.

    Raises as :func:`check`, and :class:`~wormhole.model.errors.ProtocolError` for another number of values.
    """
    p = data
    span = spans
    base = bases
    width = widths
    kind_of = kinds
    number_of = numbers
    size_of = sizes
    op_of = ops
    seen = array("q", bytes(8 * 8))
    found = seen
    for i in range(count):
        begin = span[2 * (first + i)]
        end = span[2 * (first + i) + 1]
        if begin < 0 or begin > end or end > len(data):
            raise ValueError(f"an update from {begin} to {end} of {len(data)} bytes")
        image = _AFTER
        while True:
            for k in range(8):
                found[k] = 0
            at = begin
            while at < end:
                tag = p[at]
                at += 1
                if tag > 0x7F or tag < 8:
                    tag = _tag(p, at - 1, end)
                    at = _number_end(p, at - 1, end)
                kind = tag & 7
                if kind == 0:
                    stop = _number_end(p, at, end)
                    if tag == 0x08:
                        raw = _number(p, at, stop) & 0xFFFF_FFFF
                        op_of[i] = raw if raw <= 0xFF else 0
                elif kind != 2:
                    stop = _passed(p, at, end, tag, _DEPTH)
                else:
                    stop = _stop(p, at, end)
                if kind == 2 and 0x12 <= tag <= 0x32:
                    at = _number_end(p, at, end)
                    field = tag >> 3
                    j = found[field]
                    found[field] = j + 1
                    if field == image:
                        field = _AFTER
                    if base[field] < 0 or j >= width[field]:
                        _check_value(p, at, stop)
                    else:
                        cell = (base[field] + j) * count + i
                        if at == stop:
                            kind = 9
                            start = last = at
                        elif (p[at] == 0x0A or p[at] == 0x12 or p[at] == 0x3A) and _stop(p, at + 1, stop) == stop:
                            kind = p[at] >> 3
                            start = _number_end(p, at + 1, stop)
                            last = stop
                            if kind != 1:
                                _check_text(p, start, stop)
                        elif p[at] == 0x29 and stop - at == 9:
                            kind = 5
                            start = at + 1
                            last = stop
                        elif (
                            p[at] == 0x18 or p[at] == 0x20 or p[at] == 0x30 or p[at] == 0x40 or p[at] == 0x48
                        ) and _number_end(p, at + 1, stop) == stop:
                            kind = p[at] >> 3
                            start = at + 1
                            last = stop
                        else:
                            kind, start, last = _walked(p, at, stop, None, None)
                            if kind == 0:
                                kind = 9
                        kind_of[cell] = kind
                        if kind == 3:
                            raw = _number(p, start, last)
                            number_of[cell] = raw >> 1 ^ _MASK if raw & 1 else raw >> 1
                        elif kind == 4:
                            number_of[cell] = _number(p, start, last)
                        elif kind == 6:
                            number_of[cell] = _number(p, start, last) != 0
                        elif kind == 5:
                            raw = 0
                            for k in range(8):
                                part = p[start + 7 - k]
                                raw = raw << 8 | part
                            number_of[cell] = raw
                        elif kind == 10:
                            number_of[cell] = at
                            size_of[cell] = stop - at
                        else:
                            number_of[cell] = start
                            size_of[cell] = last - start
                at = stop
            if not falls_back or image == _BEFORE or found[_AFTER] or not found[_BEFORE]:
                break
            image = _BEFORE
        for k in range(2, 7):
            if found[k] and found[k] != width[k] and (base[k] >= 0 or k == image):
                raise _other_count(found[k], width[k])


def one_value(data: bytes, begin: int, end: int) -> Value:
    """The value in the bytes of a ``Value`` that were checked. Raises as :func:`values`."""
    return _value(data, begin, end)


def decimal_of(text: str) -> Decimal | str:
    """The decimal with this text. NaN and infinities stay text, because a decimal NaN is equal to nothing and would
    never be found again as a key. Raises :class:`~wormhole.model.errors.ProtocolError`.
    """
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ProtocolError(f"row: {text!r:.60} is no decimal number") from error
    return number if number.is_finite() else str(number)


def check_decimals(data: bytes, kinds: bytearray, numbers: Ints, sizes: Ints, begin: int, end: int) -> None:
    """Check that the decimals from cell ``begin`` to ``end`` of :func:`locate` are numbers. Raises
    :class:`~wormhole.model.errors.ProtocolError`.
    """
    p = data
    kind_of = kinds
    number_of = numbers
    size_of = sizes
    for cell in range(begin, end):
        if kind_of[cell] != 7:
            continue
        start = number_of[cell]
        stop = start + size_of[cell]
        at = start
        if at < stop and p[at] == 0x2D:
            at += 1
        digits = points = 0
        while at < stop:
            if 0x30 <= p[at] <= 0x39:
                digits += 1
            elif p[at] == 0x2E and not points:
                points = 1
            else:
                break
            at += 1
        if at != stop or not digits:
            _made(p, 7, start, stop)


def split(data: bytes) -> tuple[array[int], bytes] | None:
    """Where each update of a serialized ``wormhole.wire.v1.BatchBody`` begins and ends, and the bytes of its other
    fields; ``None`` for bytes that have groups or are no message, which are left to protobuf's parser.
    """
    p = data
    size = len(data)
    updates = at = 0
    try:
        while at < size:
            updates += p[at] == _UPDATES
            at = _field_end(p, at, size)
    except DecodeError:
        return None
    spans = array("q", bytes(16 * updates))
    out = spans
    others: list[bytes] = []
    begin = i = at = 0
    while at < size:
        tag = p[at]
        if tag != _UPDATES:
            if tag & 7 == 3 or _tag(p, at, size) & 7 == 3 or _tag(p, at, size) == _UPDATES:
                return None
            at = _field_end(p, at, size)
            continue
        if begin < at:
            others.append(p[begin:at])
        begin = _field_end(p, at, size)
        out[i] = _number_end(p, at + 1, size)
        out[i + 1] = begin
        i += 2
        at = begin
    others.append(p[begin:size])
    return spans, b"".join(others)


def cut(data: bytes, spans: array[int]) -> list[bytes]:
    """The pieces of ``data`` that :func:`split` found."""
    p = data
    at = spans
    size = len(data)
    pieces: list[bytes] = []
    for i in range(0, len(spans) - 1, 2):
        begin = at[i]
        end = at[i + 1]
        if begin < 0 or begin > end or end > size:
            raise ValueError(f"a piece from {begin} to {end} of {size} bytes")
        pieces.append(p[begin:end])
    return pieces


# --- one value ---


def _check_value(p: bytes, at: int, end: int) -> int:
    """Check that these bytes are a ``Value``. Returns their end."""
    if at == end:
        return end
    tag = p[at]
    if tag == 0x0A or tag == 0x12 or tag == 0x3A:  # bytes, text, decimal: nearly always alone
        if _stop(p, at + 1, end) == end:
            return end if tag == 0x0A else _check_text(p, _number_end(p, at + 1, end), end)
    elif tag == 0x18 or tag == 0x20 or tag == 0x30 or tag == 0x40 or tag == 0x48:
        if _number_end(p, at + 1, end) == end:
            return end
    elif tag == 0x29 and end - at == 9:
        return end
    _walked(p, at, end, None, None)
    return end


def _value(p: bytes, at: int, end: int) -> Value:
    """The value in these bytes of a ``Value``."""
    if at == end:
        return UNAVAILABLE
    tag = p[at]
    if tag == 0x0A or tag == 0x12 or tag == 0x3A:
        if _stop(p, at + 1, end) == end:
            return _made(p, tag >> 3, _number_end(p, at + 1, end), end)
    elif tag == 0x18 or tag == 0x20 or tag == 0x30 or tag == 0x40 or tag == 0x48:
        if _number_end(p, at + 1, end) == end:
            return _made(p, tag >> 3, at + 1, end)
    elif tag == 0x29 and end - at == 9:
        return _made(p, 5, at + 1, end)
    names: list[bytes] = []
    contents: list[bytes] = []
    kind, begin, stop = _walked(p, at, end, names, contents)
    if kind != 10:
        return _made(p, kind, begin, stop)
    if len(names) != len(contents):
        raise ProtocolError(f"row: entries has {len(names)} names for {len(contents)} values")
    return dict(zip(names, contents, strict=True))


def _made(p: bytes, kind: int, begin: int, end: int) -> Value:
    """The value between ``begin`` and ``end``, of a kind that is not a message."""
    if kind == 1:
        return p[begin:end]
    if kind == 2:
        return p[begin:end].decode("utf-8")
    if kind == 3:
        number = _number(p, begin, end)
        half = number >> 1
        if number & 1:
            return -half - 1
        return half
    if kind == 4:
        return _number(p, begin, end)
    if kind == 5:
        double: float = _DOUBLE(p[begin:end])[0]
        return double if double == double else NAN
    if kind == 6:
        return _number(p, begin, end) != 0
    if kind == 7:
        return decimal_of(p[begin:end].decode("utf-8"))
    if kind == 8:
        return None
    return UNAVAILABLE


def _walked(
    p: bytes, at: int, end: int, names: list[bytes] | None, contents: list[bytes] | None
) -> tuple[int, int, int]:
    """The last kind in these bytes of a ``Value`` (0: none), and where its content begins and ends.

    ``names`` and ``contents``: empty lists, to which those of entries are added; ``None``: entries are only checked.
    """
    found = begin = stop = 0
    while at < end:
        tag = _tag(p, at, end)
        at = _number_end(p, at, end)
        kind = tag & 7
        number = tag >> 3
        if kind == 0:
            last = _number_end(p, at, end)
            if number == 3 or number == 4 or number == 6 or number == 8 or number == 9:
                found, begin, stop = number, at, last
        elif kind == 2:
            last = _stop(p, at, end)
            at = _number_end(p, at, end)
            if number == 2 or number == 7:
                _check_text(p, at, last)
            if number == 10:
                if found != 10 and names is not None and contents is not None:
                    names.clear()
                    contents.clear()
                _add_entries(p, at, last, names, contents)
            if number == 1 or number == 2 or number == 7 or number == 10:
                found, begin, stop = number, at, last
        else:
            last = _passed(p, at, end, tag, _DEPTH - 1)
            if tag == 0x29:
                found, begin, stop = number, at, last
        at = last
    return found, begin, stop


def _add_entries(p: bytes, at: int, end: int, names: list[bytes] | None, contents: list[bytes] | None) -> None:
    while at < end:
        tag = _tag(p, at, end)
        at = _number_end(p, at, end)
        kind = tag & 7
        if kind == 2:
            last = _stop(p, at, end)
            at = _number_end(p, at, end)
            if tag == 0x0A and names is not None:
                names.append(p[at:last])
            elif tag == 0x12 and contents is not None:
                contents.append(p[at:last])
        elif kind == 0:
            last = _number_end(p, at, end)
        else:
            last = _passed(p, at, end, tag, _DEPTH - 2)
        at = last


def _check_text(p: bytes, at: int, end: int) -> int:
    """Check that these bytes are UTF-8. Returns their end."""
    # Compiled, the loop takes an eighth of the time of making an object; interpreted, a hundred times as long.
    if _COMPILED:
        seen = 0
        for i in range(at, end):
            seen |= p[i]
        if seen < 0x80:
            return end
    try:
        p[at:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"a text is not UTF-8: {error.reason}") from error
    return end


# --- the fields of any message ---


def _field_end(p: bytes, at: int, end: int) -> int:
    """The end of the field that begins at ``at``."""
    tag = _tag(p, at, end)
    at = _number_end(p, at, end)
    kind = tag & 7
    if kind == 0:
        return _number_end(p, at, end)
    if kind == 2:
        return _stop(p, at, end)
    return _passed(p, at, end, tag, _DEPTH)


def _passed(p: bytes, at: int, end: int, tag: int, depth: int) -> int:
    """The end of a field's value that is neither a number nor has a length. Groups are skipped."""
    groups: list[int] = []
    while True:
        kind = tag & 7
        if kind == 0:
            at = _number_end(p, at, end)
        elif kind == 1:
            at += 8
        elif kind == 2:
            at = _stop(p, at, end)
        elif kind == 3:
            if len(groups) == depth:
                raise DecodeError("its groups are nested too deep")
            groups.append(tag >> 3)
        elif kind == 4:
            if not groups or groups.pop() != tag >> 3:
                raise DecodeError("a group ends that did not begin")
        elif kind == 5:
            at += 4
        else:
            raise DecodeError(f"field {tag >> 3} has the unknown wire type {kind}")
        if at > end:
            raise DecodeError(f"it breaks off in field {tag >> 3}")
        if not groups:
            return at
        tag = _tag(p, at, end)
        at = _number_end(p, at, end)


def _tag(p: bytes, at: int, end: int) -> int:
    """The tag of a field: its number and wire type."""
    stop = _number_end(p, at, end)
    tag = _number(p, at, stop)
    if stop - at > 5 or tag > 0xFFFF_FFFF or tag < 8:
        raise DecodeError("a field has a number that none has")
    return tag


def _stop(p: bytes, at: int, end: int) -> int:
    """The end of the value after the length at ``at``."""
    if at < end and p[at] < 0x80:
        length = p[at]
        at += 1
    else:
        stop = _number_end(p, at, end)
        if stop - at > 5:
            raise DecodeError("a length has more than five bytes")
        length = _number(p, at, stop)
        at = stop
    if length > _LONGEST or length > end - at:
        raise DecodeError(f"a field has {length} bytes where {end - at} are left")
    return at + length


def _number_end(p: bytes, at: int, end: int) -> int:
    """The end of the number that begins at ``at``."""
    if at < end and p[at] < 0x80:
        return at + 1
    most = at + 10
    while at < end and at < most:
        if p[at] < 0x80:
            return at + 1
        at += 1
    raise DecodeError("a number has more than ten bytes" if at == most else "it breaks off in a number")


def _number(p: bytes, at: int, stop: int) -> int:
    """The number from ``at`` to ``stop``. Bits beyond 64 are dropped."""
    value = 0
    shift = 0
    while at < stop:
        part = p[at] & 0x7F
        value |= part << shift
        shift += 7
        at += 1
    return value & _MASK
