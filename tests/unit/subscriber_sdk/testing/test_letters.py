"""The kit's store of parked updates keeps the rules of the publisher's."""

from __future__ import annotations

import pytest

from subscriber_sdk.testing.letters import KitLetters
from tests.support.letters import letter
from wormhole.model.errors import UsageError
from wormhole.ports.dead_letters import place_to_message
from wormhole.wire.v1 import push_pb2


def park(number: int, key: int = 1, *, more: bool = False, body: bytes | None = None) -> push_pb2.Park:
    told, parcel = letter(number, key)
    return push_pb2.Park(
        update_id=told.id,
        body=parcel.body if body is None else body,
        schema=parcel.schema,
        place=place_to_message(told.place),
        more=more,
        error="no",
    )


def test_letters_are_kept_in_order_up_to_the_limit() -> None:
    letters = KitLetters(2)
    assert [letters.park(park(n)) for n in (3, 2, 2)] == ["", "", ""]
    refused = letters.park(park(9))
    assert refused is not None
    assert "2 updates are parked" in refused
    assert [one.id for one in letters.all()] == ["test:2:0", "test:3:0"]


def test_a_letter_in_pieces() -> None:
    letters, body = KitLetters(9), letter(1)[1].body
    assert letters.park(park(1, more=True, body=body[:5])) is None
    assert letters.park(park(1, body=body[5:])) == ""
    assert len(letters.all()) == 1


def test_delivered_again_it_is_gone_unless_it_was_parked_again() -> None:
    letters = KitLetters(9)
    letters.park(park(1))
    letters.park(park(2))
    letters.retry("users:1")
    assert dict(letters.rows()) == {}
    first = letters.next()
    assert first is not None
    letters.delivered(first[0])
    second = letters.next()
    assert second is not None
    letters.park(park(2))
    letters.delivered(second[0])
    assert [one.id for one in letters.all()] == ["test:2:0"]
    assert letters.next() is None


def test_what_is_not_parked_cannot_be_named() -> None:
    letters = KitLetters(9)
    letters.park(park(1))
    with pytest.raises(UsageError, match="parked are: users:1"):
        letters.discard("users:2")
    letters.discard("")
    with pytest.raises(UsageError, match="no update of any row is parked"):
        letters.retry("")
