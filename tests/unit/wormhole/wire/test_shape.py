"""Bodies that come to many times their size are refused before they are parsed."""

from __future__ import annotations

import pytest

from wormhole.model.errors import ProtocolError
from wormhole.wire.body import parse_body
from wormhole.wire.shape import LONGEST_SOURCE, MOST_UPDATES, check_shape
from wormhole.wire.v1 import update_pb2

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
        (b"\x0a\x00" * (4 * MIB), "more than 524288 fields"),
        (b"\x32\x00" * (4 * MIB), "more than 524288 fields"),  # sources
        (b"\x42\x80\x80\x80\x08" + bytes(16 * MIB), "bytes beside its updates"),  # tx_number, packed
        (b"\x40\x01" * (4 * MIB), "more than 524288 fields"),  # tx_number, not packed
        (b"\x0b" * (4 * MIB), "unknown wire type"),
        (b"\xff" * (4 * MIB), "cut off"),
        (bytes(3 * MIB) + b"\x80", "fields"),
    ],
)
def test_a_body_of_many_fields_is_refused(body: bytes, why: str) -> None:
    for check in (check_shape, parse_body):
        with pytest.raises(ProtocolError, match=why):
            check(body)


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
