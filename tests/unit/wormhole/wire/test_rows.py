"""Every value comes back as it was, in its own type."""

from __future__ import annotations

from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from wormhole.model.errors import ProtocolError
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import column_type, decode_key, decode_row, encode_key, encode_row, entry, op_of, values_of
from wormhole.wire.v1 import update_pb2

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
