"""Parked updates and named keys, as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from subscriber_sdk.testing import Change, body_of
from tests.support.letters import letter
from tests.support.present import present
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange
from wormhole.model.verification import MOST_EXTRA, Difference, DifferenceKind, TableVerification, VerifyMode
from wormhole.ports.dead_letters import place_to_message
from wormhole.push import parking as module
from wormhole.push.parking import Arriving, open_letter, park_frames
from wormhole.push.session import Event, PushFlow, PushSession, Verified
from wormhole.wire.bounds import fields
from wormhole.wire.rows import encode_key
from wormhole.wire.v1 import push_pb2, update_pb2

# --- parking


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
        whole = present(arriving.take(last, "app/log"))
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
        whole = present(Arriving().take(park(**fields), "app/log"))
        open_letter(whole, "app/log")


def test_frames_of_two_updates_do_not_mix(arriving: Arriving) -> None:
    arriving.take(park(more=True), "app/log")
    with pytest.raises(ProtocolError, match=r"^park.update_id: 'test:6:0' .*'test:5:0' of app/log \[protocol-broken\]"):
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
    whole = present(arriving.take(park(), "app/log"))
    assert len(whole.pieces) == 31


def test_tiny_pieces_cost_no_more_memory_than_is_counted(arriving: Arriving) -> None:
    for _ in range(1000):
        arriving.take(park(body=b"x", more=True), "app/log")
    whole = present(arriving.take(park(body=b"y"), "app/log"))
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
    whole = present(Arriving().take(park(body=message.SerializeToString()), "app/log"))
    monkeypatch.setattr(module, "fields", counting)
    assert open_letter(whole, "app/log")[0].id == told.id
    assert counted < 10


# --- What a subscriber may report of a verification, and what every other report is


PLACE = LogPosition(1, 1, 5)
CHUNK = ChunkRange("t", Schema("t", (Column("id", "int"),), ()), None, None, 0, 1, PLACE)
EPOCH = 7


class Peer:
    """A session whose flow was sent ten rows of a table and the end of its scan, ``scans`` times."""

    def __init__(self, mode: VerifyMode = VerifyMode.REPAIR, *, verifies: bool = True, scans: int = 1) -> None:
        hello = push_pb2.Hello(min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=9999)
        self.session = PushSession(hello)
        self.says(welcome=push_pb2.Welcome(version=3, application="app", subscriber="sub", verifies=verifies))
        marker = Datamarker(PLACE, "5", PLACE)
        self.flow: PushFlow
        self.flow, self.assigned = self.session.assign(
            "app", "log", EPOCH, marker, None, 0.0, generation=4, verify=mode
        )
        self.says(accepted=push_pb2.Accepted(flow=1, epoch=EPOCH, credit=1000))
        self.session.chunk_end(self.flow, CHUNK, narrowed=False, rows=10)
        for _ in range(scans):
            self.session.scan_end(self.flow, "t", 4, 10)

    def says(self, **frame: Any) -> list[Event]:
        data = push_pb2.SubscriberMessage(frames=[push_pb2.SubscriberFrame(**frame)]).SerializeToString()
        return [event for event in self.session.receive(data) if event is not None]

    def reports(self, **fields: Any) -> list[Event]:
        given = {"flow": 1, "epoch": EPOCH, "table": "t", **fields}
        return self.says(verified=push_pb2.Verified(**given))


def difference(kind: push_pb2.Difference.Kind, number: int, *columns: str) -> push_pb2.Difference:
    key = update_pb2.RowKey.FromString(encode_key((number,)))
    return push_pb2.Difference(kind=kind, key=key, columns=columns)


def extra(count: int) -> list[push_pb2.Difference]:
    return [difference(push_pb2.Difference.EXTRA, number) for number in range(count)]


@pytest.mark.parametrize("mode", list(VerifyMode))
def test_a_subscriber_that_verifies_learns_what_becomes_of_rows(mode: VerifyMode) -> None:
    def sent(peer: Peer) -> push_pb2.Verify:
        return push_pb2.PublisherMessage.FromString(peer.assigned).frames[0].assign.verify

    number = {"none": push_pb2.VERIFY_NONE, "compare": push_pb2.VERIFY_COMPARE, "repair": push_pb2.VERIFY_REPAIR}
    assert sent(Peer(mode)) == number[mode.value]
    peer = Peer(mode, verifies=False)
    assert not peer.session.verifies
    assert sent(peer) == push_pb2.VERIFY_NONE
    assert peer.flow.verifying.mode is VerifyMode.NONE


def test_what_was_found() -> None:
    peer = Peer()
    differences = [
        difference(push_pb2.Difference.DIFFERS, 1, "a", "b"),
        difference(push_pb2.Difference.MISSING, 2),
        difference(push_pb2.Difference.EXTRA, 3),
    ]
    [found] = peer.reports(
        compared=9,
        not_compared=1,
        differs=1,
        missing=1,
        extra=1,
        repaired=2,
        removed=1,
        differences=differences,
        ended=True,
        trouble="x" * 2000,
    )
    assert isinstance(found, Verified)
    assert found.flow is peer.flow
    assert not found.confirm
    kept = (
        Difference(DifferenceKind.DIFFERS, encode_key((1,)), ("a", "b")),
        Difference(DifferenceKind.MISSING, encode_key((2,))),
        Difference(DifferenceKind.EXTRA, encode_key((3,))),
    )
    assert found.found == TableVerification("t", 9, 1, 1, 1, 1, 2, 1, kept, True, found.found.trouble)
    assert len(found.found.trouble) < 1100


def test_extra_keys_are_asked_for_once_and_the_table_ends_after_another_scan() -> None:
    peer = Peer()
    [found] = peer.reports(compared=10, extra=2, differences=extra(2), confirm=True)
    assert isinstance(found, Verified)
    assert found.confirm
    with pytest.raises(ProtocolError, match="its scan has not ended"):
        peer.reports(ended=True)
    peer = Peer()
    peer.reports(extra=1, differences=extra(1), confirm=True)
    peer.session.scan_end(peer.flow, "t", 4, 10)
    with pytest.raises(ProtocolError, match="asked for already"):
        peer.reports(confirm=True)
    [found] = peer.reports(ended=True)
    assert isinstance(found, Verified)
    with pytest.raises(ProtocolError, match="it ended already"):
        peer.reports(compared=1)


@pytest.mark.parametrize(
    ("mode", "fields", "why"),
    [
        (VerifyMode.NONE, {}, "is not being verified"),
        (VerifyMode.COMPARE, {"table": "u"}, "was sent no rows of u"),
        (VerifyMode.COMPARE, {"compared": 11}, "11 rows; 10 were sent"),
        (VerifyMode.COMPARE, {"compared": 2, "differs": 2, "missing": 1}, "more rows than were compared"),
        (VerifyMode.COMPARE, {"compared": 2, "differs": 1, "repaired": 1}, "nothing was to be repaired"),
        (VerifyMode.COMPARE, {"confirm": True}, "nothing was to be repaired"),
        (VerifyMode.REPAIR, {"compared": 2, "differs": 1, "repaired": 2}, "more rows than were not the same"),
        (VerifyMode.REPAIR, {"extra": 1, "removed": 2}, "more rows than were not the same"),
        (VerifyMode.REPAIR, {"extra": (1 << 64) - 1}, "no table has so many rows"),
        (VerifyMode.REPAIR, {"not_compared": 1 << 60}, "no table has so many rows"),
        (VerifyMode.REPAIR, {"ended": True, "confirm": True, "differences": extra(1)}, "it ended, or was asked for"),
        (VerifyMode.REPAIR, {"confirm": True}, "no extra key was named"),
        (VerifyMode.REPAIR, {"differences": extra(1001)}, "1001 entries"),
        (VerifyMode.REPAIR, {"differences": [push_pb2.Difference(kind=push_pb2.Difference.EXTRA)]}, "a key has its"),
        (VerifyMode.REPAIR, {"differences": [difference(9, 1)]}, "kind 9 is not known"),  # type: ignore[arg-type]
        (VerifyMode.REPAIR, {"differences": [difference(push_pb2.Difference.EXTRA, 1, "a")]}, "only one side has"),
        (VerifyMode.REPAIR, {"differences": [difference(push_pb2.Difference.DIFFERS, 1, "a" * 2000)]}, "2000 charact"),
        (VerifyMode.REPAIR, {"differences": [difference(push_pb2.Difference.DIFFERS, 1, *["a"] * 5000)]}, "5000 ent"),
        (VerifyMode.REPAIR, {"flow": 2}, "flow 2 was never assigned"),
        (VerifyMode.REPAIR, {"epoch": 8}, "epoch 8 was never given"),
    ],
)
def test_what_no_subscriber_reports(mode: VerifyMode, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        Peer(mode).reports(**fields)


def test_bounds_hold_for_all_reports_together() -> None:
    peer = Peer()
    for _ in range(2):
        peer.reports(compared=5, differs=2)
    with pytest.raises(ProtocolError, match="11 rows; 10 were sent"):
        peer.reports(compared=1)
    peer = Peer()
    for _ in range(MOST_EXTRA // 1000):
        peer.reports(extra=1000, differences=extra(1000))
    with pytest.raises(ProtocolError, match="more than 10000 extra keys"):
        peer.reports(extra=1, differences=extra(1))
    assert peer.session.work > 8000


def test_no_table_ends_before_its_scan() -> None:
    for ending in ({"ended": True}, {"confirm": True}):
        with pytest.raises(ProtocolError, match="its scan has not ended"):
            Peer(scans=0).reports(**ending)


def test_what_is_of_a_former_epoch_is_dropped() -> None:
    assert Peer().reports(epoch=6, compared=99) == []
