"""Rows, and the shapes of what is sent."""

from __future__ import annotations

from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from wormhole.model.errors import ProtocolError
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.body import parse_body
from wormhole.wire.rows import column_type, decode_key, decode_row, encode_key, encode_row, entry, op_of, values_of
from wormhole.wire.shape import LONGEST_SOURCE, MOST_UPDATES, check_shape
from wormhole.wire.v1 import update_pb2

# --- Every value comes back as it was, in its own type


VALUES: st.SearchStrategy[Value] = st.one_of(
    st.binary(),
    st.text(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.none(),
    st.just(UNAVAILABLE),
    st.dictionaries(st.binary(min_size=1), st.binary(), min_size=1),
)


@given(st.sampled_from(Op), st.lists(VALUES), st.lists(VALUES), st.lists(VALUES))
def test_rows_come_back(op: Op, key: list[Value], after: list[Value], before: list[Value]) -> None:
    row = decode_row(encode_row(op, key, after=after, before=before))
    assert op_of(row) is op
    for values, field in ((key, row.key), (after, row.after), (before, row.before)):
        back = values_of(field)
        assert [(type(v), v) for v in back] == [(type(v), v) for v in values]


def test_what_is_not_finite_is_found_again_as_a_key() -> None:
    """As decimals these would be equal to nothing; every NaN of a double is one object."""
    key: list[Value] = [Decimal("NaN"), Decimal("-Infinity"), float("nan")]

    def read() -> tuple[Value, ...]:
        return values_of(decode_row(encode_row(Op.INSERT, key)).key)

    assert read()[:2] == decode_key(encode_key(key))[:2] == ("NaN", "-Infinity")
    assert {read(): "a row"}[decode_key(encode_key(key))] == "a row"


def test_old_key_end_and_size_flag_come_back() -> None:
    row = decode_row(encode_row(Op.DELETE_RANGE, [b"a"], old_key=[1], key_end=[b"z"], too_large=True))
    assert (values_of(row.old_key), values_of(row.key_end), row.too_large) == ((1,), (b"z",), True)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_integers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="use Decimal"):
        encode_row(Op.INSERT, [value])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, "bool"),
        (1, "int"),
        (1.5, "double"),
        ("x", "text"),
        (Decimal(1), "decimal"),
        (b"x", "bytes"),
        (None, "bytes"),
        (UNAVAILABLE, "bytes"),
        ({b"a": b"b"}, "entries"),
    ],
)
def test_the_type_that_carries_a_value(value: Value, type_: str) -> None:
    assert column_type(value) == type_


@given(st.binary(max_size=300))
def test_an_entry_is_one_element_of_updates(data: bytes) -> None:
    assert list(update_pb2.BatchBody.FromString(entry(data) * 2).updates) == [data, data]


@pytest.mark.parametrize("number", [0, 9, 65535])
def test_an_operation_that_this_release_does_not_know_is_refused(number: int) -> None:
    row = decode_row(update_pb2.Update(op=number).SerializeToString())  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=f"operation {number} is not known") as error:
        op_of(row)
    assert error.value.hint


# --- Bodies that come to many times their size are refused before they are parsed


MIB = 1 << 20


def test_one_large_update_is_no_matter() -> None:
    body = update_pb2.BatchBody(
        updates=[bytes(40 * MIB)], schema_ids=[1], sources=["a"], tx_number=[1], tx_file=[1], tx_offset=[1], tx_end=[1]
    )
    body.tx_committed_at_us.append(1)
    assert len(parse_body(body.SerializeToString()).updates[0]) == 40 * MIB


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x0a\x00" * (2 * MIB), "more than 524288 fields"),
        (b"\x32\x00" * (2 * MIB), "more than 524288 fields"),  # sources
        (b"\x42\x80\x80\x80\x08" + bytes(16 * MIB), "bytes beside its updates"),  # tx_number, packed
        (b"\x40\x01" * (4 * MIB), "more than 524288 fields"),  # tx_number, not packed
        (b"\x0b" * (4 * MIB), "unknown wire type"),
        (b"\xff" * (4 * MIB), "cut off"),
        (bytes(3 * MIB) + b"\x80", "fields"),
    ],
)
def test_a_body_of_many_fields_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        parse_body(body)


def test_fixed_fields_are_passed_over() -> None:
    check_shape(b"\x0a\x80\x80\x80\x02" + bytes(4 * MIB) + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x48\x07")


def test_a_small_body_has_a_bounded_number_of_updates() -> None:
    with pytest.raises(ProtocolError, match=f"{MOST_UPDATES + 1} updates"):
        parse_body(b"\x0a\x00" * (MOST_UPDATES + 1))
    with pytest.raises(ProtocolError, match=f"{MOST_UPDATES + 1} transactions"):
        parse_body(update_pb2.BatchBody(tx_number=[0] * (MOST_UPDATES + 1)).SerializeToString())


def test_the_source_of_a_transaction_is_short() -> None:
    """It is remembered for the sake of its hash."""
    with pytest.raises(ProtocolError, match="sources: one is longer than 1000 characters"):
        parse_body(update_pb2.BatchBody(sources=["x" * (LONGEST_SOURCE + 1)]).SerializeToString())
