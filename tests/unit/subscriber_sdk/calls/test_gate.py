"""What becomes of an update in place of its callback."""

from __future__ import annotations

import pytest

from subscriber_sdk.calls.gate import Gate, Verdict
from subscriber_sdk.testing import Change, update
from tests.support.letters import letter, parcel_of
from wormhole.model.errors import DecodeError
from wormhole.ports.dead_letters import open_parcel
from wormhole.wire.update import Update


def users(number: int, key: int = 1) -> Update:
    return open_parcel(letter(number, key)[1])


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_an_idle_gate_lets_everything_through(gate: Gate) -> None:
    assert gate.idle
    assert gate.verdict(users(1)) is Verdict.CALL


def test_an_update_is_passed_over_by_its_id_even_if_its_row_is_parked() -> None:
    told, _ = letter(5)
    gate = Gate(["test:7:0"], [(told.rows[0], told.place)])
    assert not gate.idle
    assert [gate.verdict(users(n)) for n in (6, 7, 8)] == [Verdict.PARK, Verdict.SKIP, Verdict.PARK]


def test_what_was_before_the_first_parked_update_is_not_held() -> None:
    told, _ = letter(5)
    gate = Gate(parked=[(told.rows[0], told.place)])
    assert [gate.verdict(users(n)) for n in (4, 5, 6)] == [Verdict.CALL, Verdict.PARK, Verdict.PARK]
    assert gate.verdict(users(6, key=2)) is Verdict.CALL


def test_parking_closes_the_row_and_is_remembered(gate: Gate) -> None:
    gate.parked(users(5))
    assert not gate.idle
    assert gate.stored(users(5))
    assert not gate.stored(users(6))
    assert gate.verdict(users(6)) is Verdict.PARK


def test_a_row_that_cannot_be_read_is_reported(gate: Gate) -> None:
    gate.parked(users(5))
    broken = open_parcel(parcel_of(Change(update("users", key=1, after={"name": "ada"}).schema, b"\xff"), 6))
    with pytest.raises(DecodeError):
        gate.verdict(broken)
