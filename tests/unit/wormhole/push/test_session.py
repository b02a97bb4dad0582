"""The pushing side's grammar, enumerated: every frame in every phase of a flow, and what goes out byte by byte."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.support.letters import USERS, letter
from wormhole.model.errors import ProtocolError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import place_to_message
from wormhole.push import session as module
from wormhole.push.parking import open_letter
from wormhole.push.room import Room
from wormhole.push.session import (
    Acked,
    Event,
    FailedReason,
    FlowFailed,
    FlowPhase,
    LossDecided,
    Opened,
    ParkWanted,
    Parted,
    Progressed,
    PushFlow,
    PushSession,
    Released,
    Reported,
    Verified,
    Welcomed,
)
from wormhole.wire.bounds import MOST_FRAME_BYTES
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

Frame = push_pb2.SubscriberFrame
EPOCH = 7


def place(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def marker(offset: int) -> Datamarker:
    order = place(offset)
    return Datamarker(order, str(offset), order, Anchor(f"s:{offset}", offset, place(offset - 1)), 5)


HELLO = push_pb2.Hello(
    min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, heartbeat_ms=3000
)
WELCOME = Frame(
    welcome=push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=1 << 16, verifies=True)
)
GAP = LogGap(LossKind.NOT_LOGGED, "3", "4", "two were written past the log")


class Peer:
    """A session, and what its subscriber says."""

    def __init__(self, *, welcomed: bool = True) -> None:
        self.session = PushSession(HELLO)
        self.session.schemas((USERS,))
        if welcomed:
            assert self.says(WELCOME) == [Welcomed("sub")]

    def says(self, *frames: push_pb2.SubscriberFrame) -> list[Event]:
        return self.hears(push_pb2.SubscriberMessage(frames=frames).SerializeToString())

    def hears(self, data: bytes) -> list[Event]:
        return [event for event in self.session.receive(data) if event is not None]

    def flow(self, phase: FlowPhase, *, credit: int = 1000) -> PushFlow:
        """A flow brought into ``phase`` by the shortest legal sequence; batch 1 and the marker 10 were sent where
        they can be."""
        flow, _ = self.session.assign("app", "log", EPOCH, marker(1), None, 0.0, verify=VerifyMode.COMPARE)
        if phase is FlowPhase.ASSIGNED:
            return flow
        self.says(accepted(flow, credit))
        flow.verifying.sent("t", 1)
        self.session.batch(flow, (b"x" * 100,), place(1))
        self.session.datamarker(flow, marker(10), 1.0)
        if phase is FlowPhase.DECIDING:
            self.session.data_loss(flow, GAP, marker(20))
        if phase is FlowPhase.REVOKED:
            self.session.revoke(flow, "moves")
        assert flow.phase is phase
        return flow


def accepted(flow: PushFlow, credit: int = 1000, *, have: Datamarker | None = None, epoch: int = EPOCH) -> Frame:
    frame = push_pb2.Accepted(flow=flow.number, epoch=epoch, credit=credit)
    if have is not None:
        frame.have.CopyFrom(marker_to_message(have))
    return Frame(accepted=frame)


def progress(flow: PushFlow, number: int = 1, *, epoch: int = EPOCH) -> Frame:
    return Frame(progress=push_pb2.Progress(flow=flow.number, epoch=epoch, number=number))


def ack(flow: PushFlow, which: Datamarker | None = None, *, epoch: int = EPOCH) -> Frame:
    return Frame(ack=push_pb2.Ack(flow=flow.number, epoch=epoch, marker=marker_to_message(which or marker(10))))


def released(flow: PushFlow, *, epoch: int = EPOCH) -> Frame:
    return Frame(released=push_pb2.Released(flow=flow.number, epoch=epoch))


def failed(flow: PushFlow, reason: int = push_pb2.Failed.HANDLER, *, epoch: int = EPOCH) -> Frame:
    frame = push_pb2.Failed(flow=flow.number, epoch=epoch, update_id="s:1:0", message="no")
    frame.reason = reason  # type: ignore[assignment]
    return Frame(failed=frame)


def decision(flow: PushFlow, *, epoch: int = EPOCH) -> Frame:
    return Frame(loss_decision=push_pb2.LossDecision(flow=flow.number, epoch=epoch, proceed=True))


def park(flow: PushFlow, *, epoch: int = EPOCH, **fields: Any) -> Frame:
    told, parcel = letter(5)
    given = {"update_id": told.id, "body": parcel.body, "schema": parcel.schema, "error": "no", **fields}
    if "place" not in given and not given.get("more"):
        given["place"] = place_to_message(told.place)
    return Frame(park=push_pb2.Park(flow=flow.number, epoch=epoch, **given))


def report(flow: PushFlow, *, epoch: int = EPOCH) -> Frame:
    return Frame(report=push_pb2.Report(flow=flow.number, epoch=epoch, handler=push_pb2.HandlerReport(updates=3)))


def verified(flow: PushFlow, *, epoch: int = EPOCH) -> Frame:
    return Frame(verified=push_pb2.Verified(flow=flow.number, epoch=epoch, table="t", compared=1))


FRAMES: dict[str, Callable[..., Frame]] = {
    "accepted": accepted,
    "progress": progress,
    "ack": ack,
    "released": released,
    "failed": failed,
    "loss_decision": decision,
    "park": park,
    "report": report,
    "verified": verified,
}

# Per phase: the event that a frame gives, None for one that is dropped, or what its ProtocolError says.
_A, _O, _D, _R = FlowPhase.ASSIGNED, FlowPhase.OPEN, FlowPhase.DECIDING, FlowPhase.REVOKED
GRAMMAR: dict[str, dict[FlowPhase, type | str | None]] = {
    "accepted": {_A: Opened, _O: "accepted: app/log is open", _D: "accepted: app/log is open", _R: Progressed},
    "progress": {_A: "progress: app/log was not accepted", _O: Progressed, _D: Progressed, _R: Progressed},
    "ack": {_A: "ack: app/log was never offered the marker 1/1/10", _O: Acked, _D: Acked, _R: Acked},
    "released": {_A: Released, _O: Released, _D: Released, _R: Released},
    "failed": {_A: FlowFailed, _O: FlowFailed, _D: FlowFailed, _R: FlowFailed},
    "loss_decision": {
        _A: "loss_decision: app/log received no data loss",
        _O: "loss_decision: app/log received no data loss",
        _D: LossDecided,
        _R: None,
    },
    "park": {_A: "park: app/log was not accepted yet", _O: ParkWanted, _D: ParkWanted, _R: ParkWanted},
    "report": {_A: Reported, _O: Reported, _D: Reported, _R: Reported},
    "verified": {_A: "verified.table: app/log was sent no rows of t", _O: Verified, _D: Verified, _R: Verified},
}
CASES = [(kind, phase) for kind, phases in GRAMMAR.items() for phase in phases]


def test_the_grammar_names_every_frame_and_phase() -> None:
    about_flows = {f.name for f in Frame.DESCRIPTOR.fields} - {"welcome", "heartbeat", "goodbye"}
    assert GRAMMAR.keys() == about_flows
    assert all(phases.keys() == set(FlowPhase) for phases in GRAMMAR.values())


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.mark.parametrize(("kind", "phase"), CASES)
def test_a_frame_in_a_phase(kind: str, phase: FlowPhase, peer: Peer) -> None:
    flow = peer.flow(phase)
    expected = GRAMMAR[kind][phase]
    if isinstance(expected, str):
        with pytest.raises(ProtocolError, match=expected):
            peer.says(FRAMES[kind](flow))
        return
    events = peer.says(FRAMES[kind](flow))
    assert [type(event) for event in events] == ([] if expected is None else [expected])


@pytest.mark.parametrize(("kind", "phase"), CASES)
def test_a_frame_of_an_older_epoch_is_dropped_and_counted(kind: str, phase: FlowPhase, peer: Peer) -> None:
    flow = peer.flow(phase)
    in_flight = flow.window.in_flight
    assert peer.says(FRAMES[kind](flow, epoch=EPOCH - 1)) == []
    assert peer.session.stale == 1
    assert (flow.phase, flow.window.in_flight, peer.session.flows) == (phase, in_flight, {flow.number: flow})


@pytest.fixture
def flow(peer: Peer) -> PushFlow:
    return peer.flow(FlowPhase.OPEN)


@pytest.mark.parametrize("kind", GRAMMAR)
def test_a_frame_of_an_epoch_that_was_never_given_is_refused(kind: str, peer: Peer, flow: PushFlow) -> None:
    with pytest.raises(ProtocolError, match=r"app/log: epoch 8 .* 7.*\[protocol-broken\]"):
        peer.says(FRAMES[kind](flow, epoch=EPOCH + 1))


@pytest.mark.parametrize("kind", GRAMMAR)
@pytest.mark.parametrize("end", [released, failed])
def test_a_frame_for_a_flow_that_ended_was_on_its_way(
    kind: str, end: Callable[[PushFlow], Frame], peer: Peer, flow: PushFlow
) -> None:
    peer.says(end(flow))
    assert peer.session.flows == {}
    assert peer.says(FRAMES[kind](flow)) == []
    assert peer.session.stale == 1


@pytest.mark.parametrize("kind", GRAMMAR)
@pytest.mark.parametrize("number", [0, 2, 1 << 31])
def test_a_frame_for_a_flow_that_was_never_assigned_is_refused(
    kind: str, number: int, peer: Peer, flow: PushFlow
) -> None:
    flow.number = number
    with pytest.raises(ProtocolError, match=rf"^{kind.replace('_', '')}: flow {number} .*\[protocol-broken\]"):
        peer.says(FRAMES[kind](flow))


# --- skip and park


def assigned(data: bytes) -> push_pb2.Assign:
    [frame] = push_pb2.PublisherMessage.FromString(data).frames
    return frame.assign


def test_an_assignment_has_what_to_skip_and_what_is_parked() -> None:
    told, _ = letter(5)
    rows = [(told.rows[0], told.place)]
    _, data = Peer().session.assign("app", "log", EPOCH, marker(1), None, 0.0, skip=["s:1:0"], park=True, parked=rows)
    frame = assigned(data)
    assert (list(frame.skip), frame.park) == (["s:1:0"], True)
    [key] = frame.parked
    assert key.key.SerializeToString(deterministic=True) == told.rows[0]
    assert key.first == place_to_message(told.place)


def test_what_does_not_fit_a_message_is_said_before_it_is_sent() -> None:
    """The bound is never too low: an assignment that is said to fit is a message that the subscriber takes."""
    session = Peer().session
    told, _ = letter(5)
    row = (told.rows[0], told.place)
    assert session.lacking((), ()) == 0
    too_many = bisect_left(range(5000), True, key=lambda count: session.lacking((), [row] * count) > 0)
    for count in (1000, too_many - 1, too_many, 5000):
        rows = [row] * count
        _, data = session.assign("a" * 64, "s" * 130, 1 << 62, marker(1), None, 0.0, park=True, parked=rows)
        lacking = session.lacking((), rows)
        assert lacking or len(data) <= session.max_frame_bytes
        assert not lacking or len(data) > session.max_frame_bytes - 1024
    assert lacking, "the last was too many"


def test_a_parked_update_comes_whole_with_its_rows(peer: Peer, flow: PushFlow) -> None:
    told, parcel = letter(5)
    [event] = peer.says(park(flow))
    assert isinstance(event, ParkWanted)
    parked, opened = open_letter(event.arrived, "app/log")
    assert (parked.id, parked.rows, parked.place) == (told.id, told.rows, told.place)
    assert (parked.error, parked.size, opened) == ("no", told.size, parcel)


def test_a_parked_update_has_a_schema_that_the_stream_was_sent() -> None:
    """Another one is not even parsed: it may have any number of columns."""
    wide = Schema("users", (Column("id", "int"),), (Column("", ""),) * 60_000)
    room = Room(1 << 20)
    session = PushSession(HELLO, room.share(lambda error: None))
    list(session.receive(push_pb2.SubscriberMessage(frames=[WELCOME]).SerializeToString()))
    flow, _ = session.assign("app", "log", EPOCH, marker(1), None, 0.0)
    said = push_pb2.SubscriberMessage(frames=[accepted(flow), park(flow, schema=wide.canonical)]).SerializeToString()
    with pytest.raises(ProtocolError, match=r"^park.schema: app/log .*\[protocol-broken\]"):
        list(session.receive(said))
    assert room.used == 0


def test_a_parked_update_may_come_in_several_frames(peer: Peer, flow: PushFlow) -> None:
    _, parcel = letter(5)
    assert peer.says(park(flow, body=parcel.body[:3], more=True, schema=b"")) == []
    [event] = peer.says(park(flow, body=parcel.body[3:]))
    assert isinstance(event, ParkWanted)
    assert open_letter(event.arrived, "app/log")[1] == parcel


def test_a_large_piece_of_a_parked_update_is_the_same(peer: Peer, flow: PushFlow) -> None:
    """It is taken out of its frame, which then is parsed without it."""
    _, parcel = letter(5)
    large = parcel.body.ljust(MOST_FRAME_BYTES + 1, b"x")
    assert peer.says(park(flow, body=large, more=True, schema=b"")) == []
    [event] = peer.says(park(flow, body=b"end"))
    assert isinstance(event, ParkWanted)
    assert [bytes(piece) for piece in event.arrived.pieces] == [large, b"end"]
    frame = park(flow, body=large, more=True, schema=b"")
    frame.park.MergeFromString(b"\xa2\x06\x00" * 64)  # fields of some later release
    with pytest.raises(ProtocolError, match="park has more than 64 fields"):
        peer.says(frame)


def test_a_parked_update_is_not_opened_before_it_is_to_be_stored(peer: Peer) -> None:
    [event] = peer.says(park(peer.flow(FlowPhase.OPEN), update_id="test:6:0"))
    assert isinstance(event, ParkWanted)
    with pytest.raises(ProtocolError, match=r"^park.body: .*test:5:0 .*test:6:0 of app/log \[protocol-broken\]"):
        open_letter(event.arrived, "app/log")


def test_what_is_delivered_again_goes_as_a_replayed_batch_with_a_datamarker_behind_it(peer: Peer) -> None:
    _, parcel = letter(5)
    peer.session = PushSession(HELLO)
    peer.says(WELCOME)
    flow, _ = peer.session.assign("app", "log", EPOCH, marker(1), None, 0.0)
    peer.says(accepted(flow))
    schema = Schema.from_canonical(parcel.schema)
    data = b"".join(peer.session.letter(flow, schema, parcel.body, marker(1), 2.0))
    kinds = [frame.WhichOneof("kind") for frame in push_pb2.PublisherMessage.FromString(data).frames]
    assert kinds == ["schema", "batch", "datamarker"]
    batch = push_pb2.PublisherMessage.FromString(data).frames[1].batch
    assert (batch.number, batch.replayed, batch.body) == (1, True, parcel.body)
    assert peer.says(progress(flow), ack(flow, marker(1))) == [Progressed(flow), Acked(flow, marker(1))]
    again = push_pb2.PublisherMessage.FromString(
        b"".join(peer.session.letter(flow, schema, parcel.body, marker(1), 3.0))
    )
    assert [frame.WhichOneof("kind") for frame in again.frames] == ["batch", "datamarker"]


def test_a_parked_update_is_answered(peer: Peer, flow: PushFlow) -> None:
    [frame] = push_pb2.PublisherMessage.FromString(peer.session.parked(flow, "s:1:0", "full")).frames
    assert frame.parked == push_pb2.Parked(flow=flow.number, epoch=EPOCH, update_id="s:1:0", refused="full")


# --- the stream itself


@pytest.mark.parametrize("kind", [*GRAMMAR, "heartbeat"])
def test_nothing_but_goodbye_comes_before_welcome(kind: str) -> None:
    peer = Peer(welcomed=False)
    flow, _ = peer.session.assign("app", "log", EPOCH, marker(1), None, 0.0)
    frame = Frame(heartbeat=push_pb2.Heartbeat(number=1)) if kind == "heartbeat" else FRAMES[kind](flow)
    with pytest.raises(ProtocolError, match=f"{kind}: sent before welcome"):
        peer.says(frame)


def test_goodbye_may_come_instead_of_welcome() -> None:
    goodbye = push_pb2.Goodbye(reason=push_pb2.Goodbye.VERSION, message="only 2", hint="upgrade")
    assert Peer(welcomed=False).says(Frame(goodbye=goodbye)) == [Parted(push_pb2.Goodbye.VERSION, "only 2", "upgrade")]


def test_a_goodbye_for_a_reason_of_a_later_version_is_a_goodbye() -> None:
    goodbye = push_pb2.Goodbye(message="new times")
    goodbye.reason = 77  # type: ignore[assignment]
    assert Peer().says(Frame(goodbye=goodbye)) == [Parted(77, "new times")]


def test_an_unknown_frame_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="a frame of a kind that this version does not know"):
        Peer().says(Frame())
    with pytest.raises(ProtocolError, match="a frame of an unknown kind: sent before welcome"):
        Peer(welcomed=False).says(Frame())


def test_a_heartbeat_means_nothing() -> None:
    assert Peer().says(Frame(heartbeat=push_pb2.Heartbeat(number=9))) == []


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ProtocolError, match="is no valid message"):
        Peer().hears(b"\xff\xff")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 0}, r"welcome: version 0 was not offered \(3-3\)"),
        ({"version": 4}, r"welcome: version 4 was not offered \(3-3\)"),
        ({"application": "other"}, "welcome: other/sub answers at the address of app/sub"),
        ({"subscriber": "twin"}, "welcome: app/twin answers at the address of app/sub"),
        ({"max_frame_bytes": 4095}, "welcome: max_frame_bytes 4095 is below 4096"),
    ],
)
def test_a_welcome_that_does_not_fit(change: dict[str, int | str], says: str) -> None:
    peer = Peer(welcomed=False)
    welcome = push_pb2.Welcome()
    welcome.CopyFrom(WELCOME.welcome)
    for name, value in change.items():
        setattr(welcome, name, value)
    with pytest.raises(ProtocolError, match=says):
        peer.says(Frame(welcome=welcome))
    assert not peer.session.welcomed


def test_a_second_welcome_is_refused() -> None:
    with pytest.raises(ProtocolError, match="welcome: sent twice"):
        Peer().says(WELCOME)


@pytest.mark.parametrize(("theirs", "used"), [(0, 1 << 20), (4096, 4096), (1 << 30, 1 << 20)])
def test_the_smaller_frame_size_is_used(theirs: int, used: int) -> None:
    peer = Peer(welcomed=False)
    welcome = push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=theirs)
    peer.says(Frame(welcome=welcome))
    assert peer.session.max_frame_bytes == used


def test_several_frames_in_one_message_give_their_events_in_order(peer: Peer, flow: PushFlow) -> None:
    events = peer.says(progress(flow), ack(flow), released(flow))
    assert [type(event) for event in events] == [Progressed, Acked, Released]


# --- what answers mean


def test_accepted_may_say_what_the_application_has(peer: Peer) -> None:
    flow = peer.flow(FlowPhase.ASSIGNED)
    assert peer.says(accepted(flow, 500, have=marker(9))) == [Opened(flow, marker(9))]
    assert flow.window.credit == 500


def placeless(flow: PushFlow) -> Frame:
    frame = accepted(flow)
    frame.accepted.have.delivered = "9"
    return frame


def forged(flow: PushFlow) -> Frame:
    return ack(flow, replace(marker(10), delivered="11"))


@pytest.mark.parametrize(
    ("phase", "said", "why"),
    [
        (_A, lambda flow: accepted(flow, 0), "accepted: app/log is given no credit"),
        (_A, placeless, "datamarker: order is missing"),
        (_O, forged, "never offered"),
        (_O, lambda flow: progress(flow, 2), "batch 2 was never sent; the last one is 1"),
        *(
            (_O, partial(failed, reason=reason), rf"failed: app/log fails for no known reason \({reason}\)")
            for reason in (push_pb2.Failed.REASON_UNSPECIFIED, 99)
        ),
    ],
)
def test_a_frame_that_cannot_be_true_is_refused(
    phase: FlowPhase, said: Callable[[PushFlow], Frame], why: str, peer: Peer
) -> None:
    flow = peer.flow(phase)
    in_flight = flow.window.in_flight
    with pytest.raises(ProtocolError, match=why):
        peer.says(said(flow))
    assert flow.window.in_flight == in_flight


def test_an_ack_counts_for_offered_markers_only_and_for_those_before_it(peer: Peer, flow: PushFlow) -> None:
    for offset in (20, 30):
        peer.session.datamarker(flow, marker(offset), 2.0)
    assert peer.says(ack(flow, marker(20))) == [Acked(flow, marker(20))]
    assert [offered for _, offered in flow.offered] == [marker(30)]
    for never in (marker(10), marker(20), marker(25), marker(40)):
        with pytest.raises(ProtocolError, match=rf"^ack: app/log .* 1/1/{never.order.offset} .*\[protocol-broken\]"):
            peer.says(ack(flow, never))


def test_progress_is_never_an_ack(peer: Peer, flow: PushFlow) -> None:
    assert peer.says(progress(flow)) == [Progressed(flow)]
    assert flow.window.in_flight == 0
    assert len(flow.offered) == 1


@pytest.mark.parametrize("reason", FailedReason)
def test_a_failure_carries_reason_update_and_message(reason: FailedReason, peer: Peer, flow: PushFlow) -> None:
    assert peer.says(failed(flow, reason.value)) == [FlowFailed(flow, reason, "s:1:0", "no")]


def test_a_decision_opens_the_flow_again(peer: Peer) -> None:
    flow = peer.flow(FlowPhase.DECIDING)
    assert peer.says(decision(flow)) == [LossDecided(flow, True)]
    assert flow.phase is FlowPhase.OPEN


# --- when a marker is due


@pytest.mark.parametrize(
    ("bodies", "not_yet", "due"),
    [([b"x"], 0.999, 1.0), ([bytes(1 << 20)] * 4, None, 0.0), ([bytes(1 << 20)] * 3, 0.0, 1.0), ([], 9.9, 10.0)],
    ids=["every second", "after four mebibytes", "before four mebibytes", "every ten seconds though nothing matched"],
)
def test_when_a_marker_is_due(bodies: list[bytes], not_yet: float | None, due: float, peer: Peer) -> None:
    flow = peer.flow(FlowPhase.ASSIGNED)
    peer.says(accepted(flow, 1 << 30))
    for body in bodies:
        peer.session.batch(flow, (body,), place(1))
    assert not_yet is None or not peer.session.marker_due(flow, not_yet)
    assert peer.session.marker_due(flow, due)
    peer.session.datamarker(flow, marker(10), due)
    assert not peer.session.marker_due(flow, due + 9.9), "nothing went out since"
    assert peer.session.marker_due(flow, due + 10.0)


def test_the_same_marker_is_offered_once_while_it_waits_for_its_ack(peer: Peer, flow: PushFlow) -> None:
    assert peer.session.datamarker(flow, marker(10), 2.0) is None
    assert len(flow.offered) == 1


def test_a_subscriber_that_never_acks_costs_a_bounded_number_of_markers(peer: Peer, flow: PushFlow) -> None:
    offset, now = 20, 20.0
    while peer.session.marker_due(flow, now):
        peer.session.datamarker(flow, marker(offset), now)
        offset, now = offset + 1, now + 10.0
    assert len(flow.offered) == module.MOST_OFFERED
    peer.says(ack(flow, marker(offset - 1)))
    assert peer.session.marker_due(flow, now)


@pytest.mark.parametrize(("waited", "due"), [(0.009, False), (0.011, True)])
def test_a_flow_may_want_datamarkers_more_often(waited: float, due: bool, peer: Peer, flow: PushFlow) -> None:
    flow.marker_every_s, flow.marker_at, flow.dirty = 0.01, 7.0, True
    assert peer.session.marker_due(flow, 7.0 + waited) is due


# --- what goes out


def sent(data: bytes) -> push_pb2.PublisherFrame:
    [frame] = push_pb2.PublisherMessage.FromString(data).frames
    return frame


def test_hello_is_the_first_frame() -> None:
    assert sent(PushSession(HELLO).start()).hello == HELLO


def test_assign_says_where_the_flow_begins_and_whether_it_repeats(peer: Peer) -> None:
    flow, data = peer.session.assign("app", "log", EPOCH, marker(10), marker(30).order, 0.0)
    expected = push_pb2.Assign(
        flow=1, epoch=EPOCH, application="app", shard="log", marker=marker_to_message(marker(10)), replayed=True
    )
    assert sent(data).assign == expected
    assert flow.replay_until == place(30)
    for until in (marker(10).order, marker(5).order, None):
        again, data = peer.session.assign("app", "log", EPOCH, marker(10), until, 0.0)
        assert not sent(data).assign.replayed
        assert again.replay_until is None
    assert again.number == 4


def test_batches_are_marked_replayed_up_to_where_the_flow_was_delivered(peer: Peer) -> None:
    flow, _ = peer.session.assign("app", "log", EPOCH, marker(10), place(30), 0.0)
    peer.says(accepted(flow, 1 << 20))
    marks = []
    for begins in (10, 20, 29, 30, 40):
        [pieces] = peer.session.batch(flow, (b"body",), place(begins))
        marks.append(sent(b"".join(pieces)).batch.replayed)
    assert marks == [True, True, True, False, False]


def test_a_schema_goes_out_once_per_stream(peer: Peer) -> None:
    one, two = Schema("t", (Column("key", "bytes"),), ()), Schema("u", (), ())
    first = peer.session.schemas([one, two, one])
    assert [sent(data).schema for data in first] == [
        push_pb2.SchemaFrame(id=schema.id, canonical=schema.canonical) for schema in (one, two)
    ]
    assert peer.session.schemas([two, one]) == []


def test_a_loss_is_reported_with_its_range(peer: Peer, flow: PushFlow) -> None:
    expected = push_pb2.DataLoss(
        flow=flow.number,
        epoch=EPOCH,
        kind=push_pb2.DataLoss.NOT_LOGGED,
        first_missing="3",
        last_missing="4",
        resume=marker_to_message(marker(20)),
        message=GAP.message,
    )
    assert sent(peer.session.data_loss(flow, GAP, marker(20))).data_loss == expected
    kinds = {sent(peer.session.data_loss(flow, LogGap(k, "", "", ""), marker(20))).data_loss.kind for k in LossKind}
    assert len(kinds) == len(LossKind)


def test_the_small_frames(peer: Peer, flow: PushFlow) -> None:
    assert sent(peer.session.revoke(flow, "moves")).revoke == push_pb2.Revoke(flow=1, epoch=EPOCH, cause="moves")
    for begins, kind in ((True, push_pb2.ShardNotice.REPLAY_BEGIN), (False, push_pb2.ShardNotice.REPLAY_END)):
        told = push_pb2.ShardNotice(flow=1, epoch=EPOCH, kind=kind)
        assert sent(peer.session.notice(flow, begins=begins)).notice == told
    assert sent(peer.session.notice(flow, begins=True, latest=True)).notice.latest
    assert [sent(peer.session.heartbeat()).heartbeat.number for _ in range(2)] == [1, 2]
    goodbye = push_pb2.Goodbye(reason=push_pb2.Goodbye.PROTOCOL, message="m")
    assert sent(peer.session.goodbye(push_pb2.Goodbye.PROTOCOL, "m")).goodbye == goodbye
