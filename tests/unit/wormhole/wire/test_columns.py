"""The loops over single updates: both forms say the same, of what encoders write and of anything else."""

from __future__ import annotations

from array import array
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.hot import compiled, forms, hot_module, interpreted
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import encode_row

NAME = "wormhole.wire.columns"
columns = hot_module(NAME)
FORMS = [interpreted(NAME), *([compiled(NAME)] if "compiled" in forms() else [])]


def scanned(columns: Any, *updates: bytes) -> tuple[list[int], list[int], list[bytes], list[bytes]]:
    count = len(updates)
    ops, flags = bytearray(count), bytearray(count)
    sizes, old_sizes = array("i", bytes(4 * count)), array("i", bytes(4 * count))
    keys, old_keys = columns.scan(b"".join(updates), array("i", map(len, updates)), ops, flags, sizes, old_sizes)
    return list(ops), list(flags), cut(keys, sizes), cut(old_keys, old_sizes)


def cut(data: bytes, sizes: array[int]) -> list[bytes]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    assert not ends or ends[-1] == len(data)
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def test_a_key_is_the_same_bytes_before_and_after(columns: Any) -> None:
    changed = encode_row(Op.UPDATE, (2, "b"), after=(2, "b"), before=(1, "a"), old_key=(1, "a"))
    old = encode_row(Op.DELETE, (1, "a"))
    ops, flags, keys, old_keys = scanned(columns, changed, old)
    assert ops == [2, 3]
    assert flags == [0, 0]
    assert old_keys == [keys[1], b""]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("after", "partial"),
    [((1, "x"), 0), ((1, UNAVAILABLE), 1), ((UNAVAILABLE, None), 1), ((None, b"\x48\x01"), 0), ((), 0)],
)
def test_a_value_that_the_log_lacks_makes_a_row_partial(columns: Any, after: tuple[Value, ...], partial: int) -> None:
    assert scanned(columns, encode_row(Op.UPDATE, (1,), after=after, before=(UNAVAILABLE, 1)))[1] == [partial]


def test_what_was_too_large_lacks_everything(columns: Any) -> None:
    assert scanned(columns, encode_row(Op.UPSERT, (b"k",), too_large=True))[1] == [columns.PARTIAL | columns.LARGE]


def test_no_key(columns: Any) -> None:
    assert scanned(columns, encode_row(Op.TRUNCATE, ())) == ([4], [0], [b""], [b""])


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x05ab",  # longer than the update
        b"\x12",  # no length
        b"\x12\x80\x80\x80\x80\x80\x01",  # a length of too many bytes
        b"\x08\xff\x7f",  # an operation beyond all
        b"\x12\x01a\x1a\x00\x12\x01b",  # a key in pieces
        b"\x0d\x00\x00\x00\x00",  # no field of an update
        b"\x82\x01\x00",
    ],
)
def test_bytes_that_are_no_update(columns: Any, data: bytes) -> None:
    with pytest.raises(DecodeError, match="update 1 of a batch"):
        scanned(columns, encode_row(Op.DELETE, (1,)), data)


VALUES = st.one_of(
    st.none(),
    st.just(UNAVAILABLE),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.text(max_size=5),
    st.binary(max_size=200),
)
ROWS = st.builds(
    lambda op, key, after, before, old, large: encode_row(
        op, key, after=after, before=before, old_key=old, too_large=large
    ),
    st.sampled_from(Op),
    *(st.lists(VALUES, max_size=3) for _ in range(4)),
    st.booleans(),
)


@given(st.lists(st.one_of(ROWS, ROWS, ROWS.map(lambda row: row[:-1]), st.binary(max_size=9)), max_size=4))
def test_both_forms_read_the_same(updates: list[bytes]) -> None:
    said = []
    for form in FORMS:
        try:
            said.append(scanned(form, *updates))
        except DecodeError as error:
            said.append(str(error))  # type: ignore[arg-type]
    assert all(one == said[0] for one in said)


def test_what_does_not_fit_is_refused(columns: Any) -> None:
    data, kinds = b"abcdef", bytearray(b"\x02\x02\x03\x03")
    numbers, sizes = array("Q", [0, 3, 7, 8]), array("i", [3, 3, 0, 0])
    out = bytearray(144)
    nodes: list[int] = []
    buffers: list[int] = []
    end = columns.write_columns(data, kinds, numbers, sizes, 2, 0, bytearray(b"\x02\x03"), out, 64, 64, nodes, buffers)
    assert (nodes, buffers) == ([2, 0, 2, 0], [0, 0, 0, 12, 16, 6, 24, 0, 24, 16])
    assert (end, bytes(out[80:86]), bytes(out[88:104])) == (104, data, (7 | 8 << 64).to_bytes(16, "little"))
    with pytest.raises(ValueError, match="too few for the columns of 2 rows"):
        columns.write_columns(data, kinds, numbers, sizes, 2, 0, bytearray(b"\x02"), out[:96], 64, 64, [], [])
    with pytest.raises(OverflowError, match="2 GiB"):
        columns.write_columns(
            data, kinds, numbers, array("i", [1 << 30] * 4), 2, 0, bytearray(b"\x02"), out, 0, 0, [], []
        )
    ids = array("Q", [7, 7, 8]), array("i", [0, 0, 0])
    assert columns.write_ids(*ids, [b"s"], out, 0) == 25
    assert bytes(out[16:25]) == b"s:7s:7s:8"
    for count in (17, 21):
        with pytest.raises(ValueError, match="transactions of 3 rows"):
            columns.write_ids(*ids, [b"s"], bytearray(count // 8 * 8), 0)
    names = b"insertread", array("i", [6, 10])
    assert columns.write_names(array("i", [1, 0]), *names, out, 0) == 26
    assert bytes(out[16:26]) == b"readinsert"
    with pytest.raises(ValueError, match="2 names"):
        columns.write_names(array("i", [1, 0]), *names, bytearray(24), 0)
    for code in (2, -1):
        with pytest.raises(ValueError, match="of 2"):
            columns.write_names(array("i", [code]), *names, out, 0)
