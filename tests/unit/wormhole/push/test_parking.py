from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from subscriber_sdk.testing import Change, body_of
from tests.support.letters import letter
from wormhole.model.errors import ProtocolError
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import place_to_message
from wormhole.push import parking as module
from wormhole.push.parking import Arriving, open_letter, park_frames
from wormhole.wire.bounds import fields
from wormhole.wire.v1 import push_pb2, update_pb2


def park(**fields: Any) -> push_pb2.Park:
    told, parcel = letter(5)
    given = {"update_id": told.id, "body": parcel.body, "schema": parcel.schema, "error": "no", **fields}
    if "place" not in given and not given.get("more"):
        given["place"] = place_to_message(told.place)
    return push_pb2.Park(**given)


@pytest.fixture
def arriving() -> Arriving:
    return Arriving()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_what_was_cut_comes_together_again_and_the_next_begins_anew(piece: int, arriving: Arriving) -> None:
    for number in (5, 6):
        told, parcel = letter(number)
        *before, last = park_frames(told.id, parcel, told.place, told.error, piece)
        assert len(before) == -(-len(parcel.body) // piece) - 1
        assert all(arriving.take(frame, "app/log") is None for frame in before)
        whole = arriving.take(last, "app/log")
        assert whole is not None
        parked, opened = open_letter(whole, "app/log")
        assert opened == parcel
        assert (parked.id, parked.place, parked.rows, parked.size) == (
            told.id,
            told.place,
            told.rows,
            told.size,
        )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"update_id": "test:6:0"}, "park.body: update test:5:0 in the frames of test:6:0"),
        ({"update_id": ""}, "park.update_id: '' comes amid"),
        ({"place": None}, "park: place or schema is missing"),
        ({"schema": b""}, "park: place or schema is missing"),
        ({"schema": b"\x0a\x01\xff"}, "park.schema: no valid Schema"),
        ({"schema": b"\xff"}, "park.schema is no valid message"),
        ({"body": b""}, "park.body: 0 updates"),
        ({"body": b"\x32\x01\xff"}, "batch body is no valid message"),
        ({"body": b"\xff"}, "park.body is no valid message"),
        (
            {"schema": Schema("t", (), ()).canonical, "body": body_of([Change(Schema("t", (), ()), b"\xff")])},
            "is no valid row",
        ),
        (
            {
                "schema": Schema("t", (), ()).canonical,
                "body": body_of([Change(Schema("t", (), ()), b"\x12\x03\x12\x01\xff")]),
            },
            "is no valid row",
        ),
        (
            {"schema": Schema("t", (), ()).canonical, "body": body_of([Change(Schema("t", (), ()), b"\x08\x09")])},
            "operation 9 is not known to this release",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        whole = Arriving().take(park(**fields), "app/log")
        assert whole is not None
        open_letter(whole, "app/log")


def test_frames_of_two_updates_do_not_mix(arriving: Arriving) -> None:
    arriving.take(park(more=True), "app/log")
    with pytest.raises(
        ProtocolError, match=r"park.update_id: 'test:6:0' comes amid the frames of 'test:5:0' of app/log"
    ):
        arriving.take(park(update_id="test:6:0"), "app/log")


def test_an_update_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    arriving = Arriving()
    arriving.take(park(body=b"x" * 100, more=True), "app/log")
    with pytest.raises(ProtocolError, match=r"park.body: 101 bytes of app/log"):
        arriving.take(park(body=b"x", more=True), "app/log")


def test_pieces_are_joined_where_the_update_is_opened(arriving: Arriving) -> None:
    """On the event loop, growing a buffer would copy all of a large one again and again."""
    for _ in range(30):
        assert arriving.take(park(body=bytes(64 << 10), more=True), "app/log") is None
    whole = arriving.take(park(), "app/log")
    assert whole is not None
    assert len(whole.pieces) == 31


def test_tiny_pieces_cost_no_more_memory_than_is_counted(arriving: Arriving) -> None:
    for _ in range(1000):
        arriving.take(park(body=b"x", more=True), "app/log")
    whole = arriving.take(park(body=b"y"), "app/log")
    assert whole is not None
    assert (len(whole.pieces), b"".join(whole.pieces)) == (1, b"x" * 1000 + b"y")


def test_so_few_bytes_that_they_have_few_fields_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting 60,000 of them took thirty times as long as opening the update, and the event loop waited meanwhile."""
    counted = 0

    def counting(*arguments: Any) -> Iterator[tuple[int, int, int]]:
        nonlocal counted
        for one in fields(*arguments):
            counted += 1
            yield one

    told, parcel = letter(5)
    message = update_pb2.BatchBody.FromString(parcel.body)
    update = update_pb2.Update.FromString(message.updates[0])
    update.after.extend([update_pb2.Value()] * 60_000)
    message.updates[0] = update.SerializeToString()
    whole = Arriving().take(park(body=message.SerializeToString()), "app/log")
    assert whole is not None
    monkeypatch.setattr(module, "fields", counting)
    assert open_letter(whole, "app/log")[0].id == told.id
    assert counted < 10
