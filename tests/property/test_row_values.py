"""The values of a row from its bytes are those that protobuf's own parser finds, and so is what is refused."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row, values_of
from wormhole.wire.v1 import update_pb2

values = hot_module("wormhole.wire.values")

FIELDS = {2: "key", 3: "after", 4: "before", 5: "old_key", 6: "key_end"}
_VALUES: st.SearchStrategy[Value] = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300),
    st.text('0123456789[]{}",:', max_size=40),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.booleans(),
    st.decimals(),
    st.none(),
    st.just(UNAVAILABLE),
    st.dictionaries(st.binary(max_size=5), st.binary(max_size=5), max_size=4),
)


def _varint(value: int, padding: int = 0) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(padding):  # the same number in more bytes
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


_NUMBERS = st.one_of(
    st.integers(0, 300),
    st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70 - 1, 2**71]),
    st.integers(0, 2**64 - 1),
)
_PADDING = st.sampled_from([0] * 12 + [1, 2, 4, 9])
_PAYLOADS = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.sampled_from([b"1.5", b"-0", b"NaN", b"Infinity", b"1e5", b" 7 ", b"1_0", b"x"]),
    st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xc3"]),  # no UTF-8
    st.sampled_from(["٣.٥", "é", "\U0010ffff"]).map(str.encode),
)


@st.composite
def _field(draw: st.DrawFn, number: int, kind: int, payload: bytes = b"") -> bytes:
    tag = _varint(number << 3 | kind, draw(_PADDING))
    if kind == 0:
        return tag + _varint(draw(_NUMBERS), draw(_PADDING))
    if kind == 1:
        return tag + draw(st.one_of(st.floats().map(struct.Struct("<d").pack), st.binary(min_size=8, max_size=8)))
    if kind == 5:
        return tag + draw(st.binary(min_size=4, max_size=4))
    if kind == 2:
        return tag + _varint(len(payload), draw(_PADDING)) + payload
    return tag


def _message(known: dict[int, tuple[int, st.SearchStrategy[bytes]]]) -> st.SearchStrategy[bytes]:
    """Fields in any order and number, some with another wire type than theirs, some unknown."""

    @st.composite
    def one(draw: st.DrawFn) -> bytes:
        number = draw(st.one_of(st.sampled_from(sorted(known)), st.sampled_from(sorted(known)), st.integers(0, 2000)))
        kind, payload = known.get(number, (0, _PAYLOADS))
        if number not in known or not draw(st.integers(0, 15)):
            kind = draw(st.sampled_from([0, 1, 2, 5, 0, 1, 2, 5, 3, 4, 6, 7]))
        if kind == 3:
            inside = draw(st.lists(_field(draw(st.integers(1, 20)), draw(st.sampled_from([0, 1, 5]))), max_size=2))
            depth = draw(st.sampled_from([1, 1, 2, 97, 98, 99, 100, 101]))
            begin, end = _varint(number << 3 | 3), _varint(number << 3 | 4)
            return begin * depth + b"".join(inside) + end * depth
        return draw(_field(number, kind, draw(payload) if kind == 2 else b""))

    return st.lists(one(), max_size=4).map(b"".join)


_ENTRIES = _message({1: (2, _PAYLOADS), 2: (2, _PAYLOADS)})
_TEXTS = {1: (2, _PAYLOADS), 2: (2, _PAYLOADS), 7: (2, _PAYLOADS), 5: (1, _PAYLOADS), 10: (2, _ENTRIES)}
_VALUE = _message({**_TEXTS, **dict.fromkeys((3, 4, 6, 8, 9), (0, _PAYLOADS))})
_ROW = _message({**dict.fromkeys(FIELDS, (2, _VALUE)), 1: (0, _PAYLOADS), 7: (0, _PAYLOADS)})
_BODY = _message({1: (2, _PAYLOADS), 2: (2, _PAYLOADS), 6: (2, _PAYLOADS), 9: (0, _PAYLOADS), 13: (2, _PAYLOADS)})


@st.composite
def _broken(draw: st.DrawFn, message: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(message) or b"\x12\x02\x18\x01")
    at = draw(st.integers(0, len(data) - 1))
    match draw(st.integers(0, 3)):
        case 0:
            del data[at:]
        case 1:
            data[at] = draw(st.integers(0, 255))
        case 2:
            data.insert(at, draw(st.integers(0, 255)))
        case _:
            del data[at]
    return bytes(data)


def _exact(value: Value) -> object:
    """So that only what is the same is equal: NaN, -0, 1 and True. A decimal that is not finite arrives as its text."""
    if isinstance(value, float):
        return struct.pack("<d", value) if value == value else "a float that is no number"
    if isinstance(value, Decimal):
        return "decimal" if value.is_finite() else str, str(value)
    return type(value), list(value.items()) if isinstance(value, dict) else value


def _outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except (DecodeError, ProtobufDecodeError):
        return "no row"
    except ProtocolError as error:
        return error.message


def _by_protobuf(data: bytes, field: int) -> tuple[object, ...]:
    row = decode_row(data)
    found = getattr(row, FIELDS[field])
    kinds = [value.WhichOneof("kind") is not None for value in found]
    return int(row.op) & 0xFFFF_FFFF, row.too_large, kinds, _outcome(lambda: [*map(_exact, values_of(found))])


def _by_bytes(values: Any, data: bytes, field: int) -> tuple[object, ...]:
    around = b"\xff" + data + b"\xff"
    begin, end = 1, 1 + len(data)
    checked = values.check(around, begin, end)
    kinds = values.known(around, begin, end, field)
    found = _outcome(lambda: [*map(_exact, values.values(around, begin, end, field))])
    return checked >> 1, bool(checked & 1), kinds, found


def _same(values: ModuleType, data: bytes) -> None:
    for field in FIELDS:
        assert _outcome(lambda: _by_bytes(values, data, field)) == _outcome(lambda: _by_protobuf(data, field))  # noqa: B023


@given(
    op=st.sampled_from(Op),
    key=st.lists(_VALUES, max_size=3),
    after=st.lists(_VALUES, max_size=6),
    before=st.lists(_VALUES, max_size=6),
    old_key=st.lists(_VALUES, max_size=2),
    large=st.booleans(),
)
def test_what_a_publisher_writes(
    values: ModuleType,
    op: Op,
    key: list[Value],
    after: list[Value],
    before: list[Value],
    old_key: list[Value],
    large: bool,
) -> None:
    data = encode_row(op, key, after=after, before=before, old_key=old_key, too_large=large)
    _same(values, data)
    assert [*map(_exact, values.values(data, 0, len(data), values.AFTER))] == [*map(_exact, after)]


@given(_ROW)
@example(b"\x12\x08" + b"\x52\x06" + b"\x0a\x01a\x12\x01b")  # entries at once
@example(b"\x12\x0a" + b"\x52\x03\x0a\x01a" + b"\x52\x03\x12\x01b")  # in pieces
@example(b"\x12\x0d" + b"\x52\x03\x0a\x01a" + b"\x0a\x01x" + b"\x52\x03\x12\x01b")  # another kind between
@example(b"\x1a\x02\x40\x00\x1a\x02\x48\x00\x1a\x02\x30\x02\x1a\x00")  # null and unavailable whatever they say
def test_any_message(values: ModuleType, data: bytes) -> None:
    _same(values, data)


@given(_broken(_ROW))
def test_a_message_that_was_damaged(values: ModuleType, data: bytes) -> None:
    _same(values, data)


@given(st.binary(max_size=40))
def test_any_bytes(values: ModuleType, data: bytes) -> None:
    _same(values, data)


@given(st.lists(_VALUES, min_size=1, max_size=3), st.data())
def test_every_beginning_of_a_row(values: ModuleType, after: list[Value], data: st.DataObject) -> None:
    row = encode_row(Op.INSERT, (1,), after=after)
    _same(values, row[: data.draw(st.integers(0, len(row)))])


@pytest.mark.parametrize("levels", [97, 98, 99, 100, 101])
@pytest.mark.parametrize("wrap", [(), (2,), (10, 2)])
def test_groups_inside_each_other(values: ModuleType, levels: int, wrap: tuple[int, ...]) -> None:
    data = b"\x7b" * levels + b"\x7c" * levels
    for number in wrap:
        data = _varint(number << 3 | 2) + _varint(len(data)) + data
    _same(values, data)


def test_values_by_name(values: ModuleType) -> None:
    data = encode_row(Op.INSERT, (), after=(1, "x"))
    assert values.named(data, 0, len(data), values.AFTER, ("a", "b")) == {"a": 1, "b": "x"}
    assert values.named(data, 0, len(data), values.BEFORE, ("a", "b")) is None
    with pytest.raises(ProtocolError, match="2 values for the 1 columns of its schema"):
        values.named(data, 0, len(data), values.AFTER, ("a",))


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (0, 6), (3, 2)])
def test_only_what_is_there_is_looked_at(values: ModuleType, begin: int, end: int) -> None:
    with pytest.raises(ValueError, match="of 5 bytes"):
        values.check(b"\x08\x01\x12\x01\x01"[:5], begin, end)


@given(st.one_of(_BODY, _broken(_BODY)))
@example(b"\x0a\x01a\x48\x01\x0a\x01b")
@example(b"\x8a\x00\x01a")  # the tag in two bytes
@example(b"\x7b\x0a\x01a\x7c")  # inside a group
def test_the_updates_of_a_body(values: ModuleType, data: bytes) -> None:
    try:
        expected = update_pb2.BatchBody.FromString(data)
    except ProtobufDecodeError:
        found = values.split(data)
        if found is not None:
            with pytest.raises(ProtobufDecodeError):
                update_pb2.BatchBody.FromString(found[1])
        return
    found = values.split(data)
    if found is None:
        assert {3, 4} & {byte & 7 for byte in data} or 0x8A in data
        return
    spans, others = found
    assert values.cut(data, spans) == list(expected.updates)
    expected.ClearField("updates")
    assert update_pb2.BatchBody.FromString(others) == expected


@pytest.mark.parametrize("spans", [(-1, 2), (0, 6), (3, 2)])
def test_only_pieces_that_are_there_are_cut(values: ModuleType, spans: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="of 5 bytes"):
        values.cut(b"abcde", array("q", spans))
