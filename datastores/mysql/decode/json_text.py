"""Converts MySQL's binary JSON to the text that SELECT shows. Hot: compiled where possible.

The format (MySQL's server documentation, "json_binary.h"; integers are little endian)::

    document  := kind value
    container := count size key* entry* ...    key := offset length (2)    entry := kind (offset | a small value itself)
    string    := length bytes                   opaque := column type (1) length bytes

``count``, ``size`` and offsets take 2 bytes in small containers and 4 in large ones. Offsets count from the container's
``count`` on. ``length``: seven bits per byte, lowest first; a high bit means that more follow. Arrays have no keys.
"""

from __future__ import annotations

import codecs
import struct
from binascii import b2a_base64
from math import isfinite
from typing import Final

from datastores.common.encode.buffer import grow
from datastores.mysql.decode.dates_and_decimals import ROOM, put_decimal, size_of_decimal
from wormhole.model.errors import DecodeError

__all__ = ["MAX_DEPTH", "json_text", "json_utf8", "print_json"]

MAX_DEPTH: Final = 100
"""The deepest nesting of arrays and objects. MySQL stores no deeper document."""

_MAX_DEPTH: Final = MAX_DEPTH
_LARGE: Final = 1
_ARRAY: Final = 2
_LITERAL: Final = 4
_UINT16: Final = 6
_UINT32: Final = 8
_DOUBLE: Final = 11
_STRING: Final = 12
_OPAQUE: Final = 15
# The bytes of values of the kinds _LITERAL to _DOUBLE.
_SIZES: Final = bytes((0, 0, 0, 0, 1, 2, 2, 4, 4, 8, 8, 8))

_MASK: Final = (1 << 64) - 1

# Column types that opaque values have.
_TIMESTAMP, _DATE, _TIME, _DATETIME = 7, 10, 11, 12
_DECIMAL: Final = 246
_VAR_STRING: Final = 253
_BASE64_LINE: Final = 76 // 4 * 3
_MOST_DIGITS: Final = 81  # the most digits in MySQL's form of a decimal

# The character after the backslash of an escaped byte; u: four digits follow.
_ESCAPES: Final = b"uuuuuuuubtnufruuuuuuuuuuuuuuuuuu" + bytes(2) + b'"' + bytes(57) + b"\\" + bytes(163)
_DIGITS: Final = b"0123456789abcdef"
_FOUR_DIGITS: Final = 0x75
_NUMBER: Final = 20  # digits of the longest number
_FLOAT: Final = struct.Struct("<d")
_CHECKED: Final = 1 << 16  # the most bytes of text that are checked together for valid UTF-8
_NO_LIMIT: Final = 1 << 62


class _TooLongError(Exception):
    """The text exceeds its limit of bytes."""


def _double(x: float) -> str:
    """A double as MySQL prints it: the shortest digits for ``x``, with an exponent from 10**15 on and below 10**-15."""
    text = repr(x)
    size = abs(x)
    if 1e-4 <= size < 1e15 or size == 0:
        return text
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = len(whole) + int(exponent or 0)
    if -15 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    elif 0 < point < len(digits):
        text = f"{digits[:point]}.{digits[point:]}"
    else:
        text = f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"
    return f"-{text}" if x < 0 else text


def _moment(column_type: int, packed: int) -> str:
    """A date, a time or both; empty: the bits are no such value."""
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    fraction = packed & 0xFFFFFF
    if fraction > 999_999:
        return ""
    clock = f"{(packed >> 30) & 0x3F:02}:{(packed >> 24) & 0x3F:02}.{fraction:06}"
    if column_type == _TIME:
        return "" if packed >> 46 else f"{sign}{packed >> 36:02}:{clock}"
    year, month = divmod(packed >> 46, 13)
    if sign or year > 9999:
        return ""
    date = f"{year:04}-{month:02}-{(packed >> 41) & 0x1F:02}"
    return date if column_type == _DATE else f"{date} {(packed >> 36) & 0x1F:02}:{clock}"


class _Printer:
    """Prints one document into ``out``, from ``at`` on, up to ``limit`` bytes.

    No byte of the input is printed twice. A budget keeps time and output proportional to the input.
    """

    __slots__ = ("begin", "data", "last", "left", "out", "start", "used")

    def __init__(self, data: bytes, start: int, end: int, out: bytearray, at: int, limit: int) -> None:
        self.data = data
        self.start = start
        self.begin = start
        self.left = end - start
        self.out = out
        self.used = at
        self.last = at + limit

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes."""
        if self.used + size > len(self.out):
            if self.used > self.last:
                raise _TooLongError
            grow(self.out, self.used + size)

    def put(self, text: bytes) -> None:
        """Print these bytes unchanged."""
        size = len(text)
        self.reserve(size)
        p = text
        o = self.out
        at = self.used
        for i in range(size):
            o[at + i] = p[i]
        self.used = at + size

    def fail(self, problem: str, at: int) -> DecodeError:
        return DecodeError(f"JSON document: {problem} at byte {at - self.start} of it")

    def spend(self, size: int, at: int) -> None:
        self.left -= size
        if self.left < 0:
            raise self.fail("values overlap", at)

    def number(self, at: int, size: int) -> int:
        p = self.data
        n = 0
        shift = 0
        for i in range(size):
            byte = p[at + i]
            n |= byte << shift
            shift += 8
        return n

    def value(self, kind: int, at: int, end: int, depth: int) -> None:
        """Print the value at ``at``. ``end``: the end of its container or document."""
        sizes = _SIZES
        if kind <= _ARRAY + _LARGE:
            self.container(kind, at, end, depth)
        elif kind <= _DOUBLE:
            size = sizes[kind]
            if size > end - at:
                raise self.fail("a number is cut off", at)
            self.spend(size, at)
            self.scalar(kind, at)
        elif kind == _STRING:
            size = self.bytes_at(at, end)
            self.quoted(self.begin, size)
        elif kind == _OPAQUE:
            self.opaque(at, end)
        else:
            raise self.fail(f"kind {kind} is unknown", at)

    def container(self, kind: int, at: int, end: int, depth: int) -> None:
        p = self.data
        large = kind & _LARGE
        is_object = kind < _ARRAY
        width = 4 if large else 2
        inline = _UINT32 if large else _UINT16
        if depth >= _MAX_DEPTH:
            raise self.fail(f"more than {MAX_DEPTH} levels", at)
        if 2 * width > end - at:
            raise self.fail("a container is cut off", at)
        count = self.number(at, width)
        size = self.number(at + width, width)
        keys = at + 2 * width
        entries = keys + count * (width + 2) if is_object else keys
        header = entries + count * (1 + width) - at
        if size > end - at or header > size:
            raise self.fail(f"a container of {count} values in {size} bytes", at)
        self.spend(header, at)
        self.put(b"{" if is_object else b"[")
        for i in range(count):
            if i:
                self.put(b", ")
            if is_object:
                key = self.number(keys + i * (width + 2), width)
                length = self.number(keys + i * (width + 2) + width, 2)
                if key + length > size:
                    raise self.fail("a key lies outside of its object", at)
                self.spend(length, at)
                self.quoted(at + key, length)
                self.put(b": ")
            entry = entries + i * (1 + width)
            child = p[entry]
            if _LITERAL <= child <= inline:
                self.scalar(child, entry + 1)
            else:
                offset = self.number(entry + 1, width)
                if offset < header or offset >= size:
                    raise self.fail("a value lies outside of its container", at)
                self.value(child, at + offset, at + size, depth + 1)
        self.put(b"}" if is_object else b"]")

    def scalar(self, kind: int, at: int) -> None:
        """Print a literal or a number. The caller has checked that its bytes exist."""
        sizes = _SIZES
        n = self.number(at, sizes[kind])
        if kind == _LITERAL:
            if n > 2:
                raise self.fail(f"literal {n} is unknown", at)
            self.put(b"true" if n == 1 else b"false" if n else b"null")
        elif kind == _DOUBLE:
            x = _FLOAT.unpack_from(self.data, at)[0]
            if not isfinite(x):
                raise self.fail("a double is no number", at)
            self.put(_double(x).encode())
        else:
            # The odd kinds are signed.
            top: int = 8 * sizes[kind] - 1
            if kind & 1 and n >> top:
                self.put(b"-")
                n = (n ^ _MASK) + 1
                n &= _MASK >> (63 - top)
            self.digits(n)

    def digits(self, n: int) -> None:
        """A number without sign."""
        self.reserve(_NUMBER)
        o = self.out
        end = self.used + _NUMBER
        at = end
        while True:
            at -= 1
            o[at] = 48 + n % 10
            n //= 10
            if not n:
                break
        for i in range(end - at):
            o[self.used + i] = o[at + i]
        self.used += end - at

    def bytes_at(self, at: int, end: int) -> int:
        """The number of bytes of the string at ``at``, without its length. Sets ``begin`` to the first byte."""
        p = self.data
        first = at
        size = 0
        shift = 0
        while True:
            if at >= end or shift > 28:
                raise self.fail("the length of a string is none", at)
            byte = p[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if size > end - at:
            raise self.fail("a string is cut off", at)
        self.spend(at - first + size, at)
        self.begin = at
        return size

    def quoted(self, at: int, size: int) -> None:
        """Print a string in quotation marks. Characters are escaped only if JSON requires it."""
        p = self.data
        escapes = _ESCAPES
        digits = _DIGITS
        room = size + 2
        for i in range(at, at + size):
            if escapes[p[i]]:
                room += 5 if escapes[p[i]] == _FOUR_DIGITS else 1
        if self.used + room > self.last:
            raise _TooLongError
        self.reserve(room)
        o = self.out
        to = self.used
        o[to] = 0x22
        to += 1
        for i in range(at, at + size):
            byte = p[i]
            if escapes[byte]:
                o[to] = 0x5C
                o[to + 1] = escapes[byte]
                to += 2
                if byte < 0x20 and escapes[byte] == _FOUR_DIGITS:
                    o[to] = o[to + 1] = 0x30
                    o[to + 2] = digits[byte >> 4]
                    o[to + 3] = digits[byte & 0x0F]
                    to += 4
            else:
                o[to] = byte
                to += 1
        o[to] = 0x22
        self.used = to + 1

    def opaque(self, at: int, end: int) -> None:
        """Print a value of a column type that JSON lacks."""
        if at >= end:
            raise self.fail("an opaque value is cut off", at)
        column_type = self.data[at]
        size = self.bytes_at(at + 1, end)
        begin = self.begin
        if column_type == _VAR_STRING:
            self.quoted(begin, size)
        elif column_type == _DECIMAL:
            self.decimal(begin, size)
        elif column_type in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
            raw = self.data[begin : begin + size]
            text = _moment(column_type, int.from_bytes(raw, "little", signed=True)) if size == 8 else ""
            if not text:
                raise self.fail("a date or time is none", at)
            self.put(b'"%s"' % text.encode())
        else:
            self.put(b'"base64:type%d:' % column_type)
            stop = begin + size
            for i in range(begin, stop, _BASE64_LINE):
                self.put(b2a_base64(self.data[i : min(i + _BASE64_LINE, stop)], newline=False))
                if stop - i > _BASE64_LINE:
                    self.put(b"\\n")  # MySQL breaks the lines of Base64, then escapes the breaks
            self.put(b'"')

    def decimal(self, at: int, size: int) -> None:
        """Print a decimal: the number of digits, the number after the point, and the bytes of a DECIMAL column.

        MySQL counts digits before the point in groups of nine: DECIMAL(65,30) comes with 36 of them.
        """
        precision = self.data[at] if size else 0
        scale = self.data[at + 1] if size > 1 else 0
        text = bytearray(ROOM)
        end = -1
        if (
            0 < precision <= _MOST_DIGITS
            and scale <= min(precision, 30)
            and size_of_decimal(precision, scale) == size - 2
        ):
            end = put_decimal(text, 0, self.data, at + 2, precision, scale)
        if end < 0:
            raise self.fail("a decimal is none", at)
        self.put(bytes(text[:end]))


def print_json(data: bytes, start: int, end: int, out: bytearray, at: int, limit: int) -> int:
    """Print the document in ``data[start:end]`` as SELECT shows it, in UTF-8, into ``out`` at ``at``. ``out`` grows as
    needed.

    Returns the offset after it; -1: it exceeds ``limit`` bytes. An empty range is ``null``, as in MySQL. Raises
    :class:`DecodeError` for bytes that are no document.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"bytes {start} to {end} of {len(data)} are out of range")
    printer = _Printer(data, start, end, out, at, limit)
    if start == end:
        printer.put(b"null")
    else:
        try:
            printer.value(data[start], start + 1, end, 0)
        except _TooLongError:
            return -1
        _check_utf8(out, at, printer.used)
    return printer.used if printer.used <= printer.last else -1


def _check_utf8(text: bytearray, at: int, end: int) -> None:
    try:
        if end - at <= _CHECKED:
            text[at:end].decode()
        else:
            with memoryview(text) as view:
                while at < end:
                    stop = min(end, at + _CHECKED)
                    at += codecs.utf_8_decode(view[at:stop], "strict", stop == end)[1]
    except UnicodeDecodeError as error:
        raise DecodeError(f"JSON document: a string is not UTF-8: {error.reason}") from None


def json_utf8(data: bytes, start: int, end: int) -> bytes:
    """The document in ``data[start:end]`` as text in UTF-8; see `print_json`."""
    out = bytearray(64)
    stop = print_json(data, start, end, out, 0, _NO_LIMIT)
    return bytes(out[:stop])


def json_text(data: bytes, start: int, end: int) -> str:
    """`json_utf8` as text."""
    return json_utf8(data, start, end).decode()
