"""One stream: which frame may come when, what is answered, and what verifications add."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk.options.admission import Admission
from subscriber_sdk.stream import events
from subscriber_sdk.stream.events import (
    Assigned,
    BatchArrived,
    Closed,
    Event,
    LossArrived,
    MarkerArrived,
    NoticeArrived,
    ParkAnswered,
    PublisherWelcomed,
    Revoked,
)
from subscriber_sdk.stream.flow_port import Abilities
from subscriber_sdk.stream.session import Session
from subscriber_sdk.testing import frames, marker_at
from tests.support.letters import letter
from wormhole.model.schema import Column, Schema
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import Parcel, place_to_message
from wormhole.wire.v1 import push_pb2

# --- session ---


Frame = push_pb2.PublisherFrame
SCHEMA = Schema("users", (Column("id", "int"),), (Column("name", "text"),))
KEY_SCHEMA = Schema("users", SCHEMA.key, ())
HELLO = frames.hello("app", "one")
ASSIGN = frames.assign(1, 5, "app", "s", marker_at(0), generation=2)


def new(now: float = 0.0) -> Session:
    return Session(Admission("app", "one"), max_frame_bytes=10_000, max_body_bytes=1000, now=now)


def tell(session: Session, *given_frames: Frame, now: float = 0.0) -> list[Event]:
    return session.receive(push_pb2.PublisherMessage(frames=given_frames).SerializeToString(), now)


def said(session: Session, now: float = 0.0) -> list[push_pb2.SubscriberFrame]:
    data = session.take_output(now)
    return [] if data is None else list(push_pb2.SubscriberMessage.FromString(data).frames)


def kinds(session: Session) -> list[str | None]:
    return [frame.WhichOneof("kind") for frame in said(session)]


def opened(credit: int = 1000) -> Session:
    session = new()
    tell(session, HELLO, ASSIGN)
    session.accept(1, credit, None)
    said(session)
    return session


@pytest.fixture
def session() -> Session:
    """With one open flow."""
    return opened()


def refusal(session: Session) -> push_pb2.Goodbye:
    *_, last = said(session)
    assert session.closed
    assert last.WhichOneof("kind") == "goodbye"
    return last.goodbye


# --- hello ---


@pytest.mark.parametrize(("named", "theirs"), [("one", 3), ("one", 7), ("", 3)])
def test_hello_is_answered_with_welcome(named: str, theirs: int) -> None:
    session = new()
    assert tell(session, frames.hello("app", named, min_version=1, max_version=theirs)) == [PublisherWelcomed()]
    (frame,) = said(session)
    assert frame.welcome == push_pb2.Welcome(version=3, application="app", subscriber="one", max_frame_bytes=10_000)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (frames.hello("app", "one", min_version=4, max_version=9), push_pb2.Goodbye.VERSION),
        (frames.hello("app", "two"), push_pb2.Goodbye.WRONG_ADDRESS),
        (frames.hello("app", "one", dataset="other"), push_pb2.Goodbye.WRONG_ADDRESS),
    ],
)
def test_a_hello_that_is_refused_ends_the_stream(hello: Frame, reason: int) -> None:
    """Which hello is refused, and in which words: test_admission."""
    session = Session(Admission("app", "one", dataset="shop"), max_frame_bytes=10_000, max_body_bytes=1000, now=0.0)
    (event,) = tell(session, hello, ASSIGN)
    assert isinstance(event, Closed)
    goodbye = refusal(session)
    assert (goodbye.reason, bool(goodbye.hint)) == (reason, True)
    assert tell(session, ASSIGN) == []


@pytest.mark.parametrize("ms", [0, 3_600_001])
def test_an_impossible_heartbeat_is_refused(ms: int) -> None:
    session = new()
    tell(session, frames.hello("app", "one", heartbeat_ms=ms))
    assert "hello.heartbeat_ms" in refusal(session).message


# --- the grammar, enumerated: every sequence of three frames after hello ---

FLOW_FRAMES: dict[str, Callable[[int], Frame]] = {
    "assign": lambda epoch: frames.assign(1, epoch, "app", "s", marker_at(0), generation=2),
    "batch": lambda epoch: frames.batch(1, epoch, 1, b"body"),
    "datamarker": lambda epoch: frames.datamarker(1, epoch, marker_at(1)),
    "notice": lambda epoch: Frame(
        notice=push_pb2.ShardNotice(flow=1, epoch=epoch, kind=push_pb2.ShardNotice.REPLAY_BEGIN)
    ),
    "data_loss": lambda epoch: Frame(data_loss=push_pb2.DataLoss(flow=1, epoch=epoch, kind=push_pb2.DataLoss.PURGED)),
    "chunk_end": lambda epoch: frames.chunk_end(1, epoch, push_pb2.ChunkEnd(schema=KEY_SCHEMA.id)),
    "scan_end": lambda epoch: frames.scan_end(1, epoch, "users", 2),
    "part": lambda epoch: frames.parts(1, epoch, 1, b"body", 2)[0],
    "revoke": lambda epoch: frames.revoke(1, epoch),
    "heartbeat": lambda epoch: Frame(heartbeat=push_pb2.Heartbeat(number=1)),
    "schema": lambda epoch: frames.schema(SCHEMA),
    "goodbye": lambda epoch: Frame(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING)),
    "hello": lambda epoch: HELLO,
}


OF_A_FLOW = ["batch", "part", "datamarker", "notice", "data_loss", "chunk_end", "scan_end", "revoke"]


def allowed(sequence: tuple[str, ...]) -> bool:
    """The grammar once more, as a table of states; batches are numbered rightly, and a part never is the last."""
    state = "unassigned"
    for kind in sequence:
        match state, kind:
            case _, "goodbye":
                return True  # nothing after it is looked at
            case _, "hello":
                return False
            case _, ("heartbeat" | "schema"):
                pass
            case "unassigned", "assign":
                state = "open"
            case _, "assign":
                return False  # the same epoch again
            case "unassigned", _:
                return False
            case _, "revoke":
                state = "revoked"
            case "revoked", _:
                pass  # on its way when we were asked: dropped
            case "deciding", "data_loss":
                return False  # nothing is told before the decision about the first
            case (("open" | "deciding"), "part"):
                state = "parts"
            case "open", "data_loss":
                state = "deciding"
            case "parts", "part":
                pass
            case "parts", _:
                return False
    return True


@pytest.mark.parametrize("first", FLOW_FRAMES)
def test_every_sequence_of_three_frames(first: str) -> None:
    for rest in itertools.product(FLOW_FRAMES, repeat=2):
        sequence = (first, *rest)
        session = new()
        tell(session, HELLO, frames.schema(KEY_SCHEMA))
        batch, part = 0, 0
        for kind in sequence:
            frame = FLOW_FRAMES[kind](5)
            if kind == "batch":
                batch += 1
                frame.batch.number = batch
            elif kind == "part":
                batch += not part
                frame.part.CopyFrom(push_pb2.Part(flow=1, epoch=5, number=batch, index=part, total_bytes=10, data=b"x"))
                part += 1
            for event in tell(session, frame):
                if isinstance(event, Assigned):
                    session.accept(1, 1000, None)
        broke = any(frame.goodbye.reason == push_pb2.Goodbye.PROTOCOL for frame in said(session))
        assert broke == (not allowed(sequence)), sequence


@pytest.mark.parametrize("kind", [kind for kind in FLOW_FRAMES if kind != "hello"])
def test_the_first_frame_is_hello(kind: str) -> None:
    session = new()
    tell(session, FLOW_FRAMES[kind](5))
    assert "first frame of a stream is hello" in refusal(session).message


# --- flows ---


def test_an_assignment_is_reported_and_accepted() -> None:
    session = new()
    _, event = tell(session, HELLO, ASSIGN)
    assert event == Assigned(1, 5, "s", marker_at(0), False, generation=2)
    session.accept(1, 77, marker_at(3))
    accepted = said(session)[-1].accepted
    assert (accepted.flow, accepted.epoch, accepted.credit, accepted.have.delivered) == (1, 5, 77, "3")


def test_what_arrives_is_reported_in_order(session: Session) -> None:
    events = tell(
        session,
        FLOW_FRAMES["notice"](5),
        frames.batch(1, 5, 1, b"one"),
        *frames.parts(1, 5, 2, b"twotwo", 4),
        frames.datamarker(1, 5, marker_at(2)),
        FLOW_FRAMES["data_loss"](5),
        frames.revoke(1, 5, "moved"),
    )
    assert [type(event) for event in events] == [
        NoticeArrived,
        BatchArrived,
        BatchArrived,
        MarkerArrived,
        LossArrived,
        Revoked,
    ]
    assert events[2] == BatchArrived(1, 2, False, b"twotwo")


@pytest.mark.parametrize("kind", OF_A_FLOW)
def test_frames_of_an_older_epoch_are_dropped_and_counted(session: Session, kind: str) -> None:
    assert tell(session, FLOW_FRAMES[kind](4)) == []
    assert session.dropped == 1
    assert not session.closed


@pytest.mark.parametrize("kind", OF_A_FLOW)
def test_frames_of_a_released_flow_are_dropped_and_counted(session: Session, kind: str) -> None:
    session.release(1, None)
    assert tell(session, FLOW_FRAMES[kind](5)) == []
    assert session.dropped == 1


@pytest.mark.parametrize("kind", OF_A_FLOW)
@pytest.mark.parametrize(("flow", "epoch", "named"), [(9, 5, "flow"), (1, 6, "epoch")])
def test_flows_and_epochs_that_were_never_assigned_are_refused(
    session: Session, kind: str, flow: int, epoch: int, named: str
) -> None:
    frame = FLOW_FRAMES[kind](epoch)
    getattr(frame, kind).flow = flow
    tell(session, frame)
    assert f"{kind}.{named}: " in refusal(session).message


def test_after_failed_only_a_revocation_matters(session: Session) -> None:
    session.fail(1, push_pb2.Failed.HANDLER, "a:1:0", "poison")
    assert tell(session, frames.batch(1, 5, 1, b"x"), frames.revoke(1, 5)) == [Revoked(1, "")]
    session.release(1, marker_at(1))
    assert kinds(session) == ["failed", "released"]


def test_a_newer_epoch_takes_the_flow_over(session: Session) -> None:
    (event,) = tell(session, frames.assign(1, 6, "app", "s", marker_at(2)))
    assert isinstance(event, Assigned)
    assert tell(session, frames.batch(1, 5, 1, b"late")) == []
    assert not session.closed


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (frames.assign(1, 6, "app", "other", marker_at(0)), "assign.flow"),
        (frames.assign(1, 5, "app", "s", marker_at(0)), "assign.epoch"),
        (frames.assign(2, 1, "else", "s", marker_at(0)), "assign.application"),
        (frames.assign(2, 1, "app", "", marker_at(0)), "assign.shard"),
        (Frame(assign=push_pb2.Assign(flow=2, epoch=1, application="app", shard="t")), "assign.marker"),
        (Frame(datamarker=push_pb2.DatamarkerFrame(flow=1, epoch=5)), "datamarker.marker"),
        (Frame(notice=push_pb2.ShardNotice(flow=1, epoch=5)), "notice.kind"),
        (Frame(data_loss=push_pb2.DataLoss(flow=1, epoch=5)), "data_loss.kind"),
        (Frame(schema=push_pb2.SchemaFrame(id=1, canonical=SCHEMA.canonical)), "schema.id"),
        (Frame(schema=push_pb2.SchemaFrame(id=1, canonical=b"\xff")), "schema.canonical"),
        (Frame(), "PublisherFrame.kind"),
        (frames.batch(1, 5, 1, bytes(1001)), "batch.body"),
    ],
)
def test_a_wrong_field_is_named(session: Session, frame: Frame, named: str) -> None:
    assert isinstance(tell(session, frame, frames.batch(1, 5, 1, b"after"))[-1], Closed)
    goodbye = refusal(session)
    assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert named in goodbye.message
    assert goodbye.hint


def test_a_frame_kind_of_a_later_version_is_refused(session: Session) -> None:
    frame = b"\xfa\x01\x00"  # field 31, empty
    session.receive(b"\x0a" + bytes([len(frame)]) + frame, 0.0)
    assert "PublisherFrame.kind" in refusal(session).message


def test_an_oversized_message_is_refused(session: Session) -> None:
    session.receive(bytes(10_001), 0.0)
    assert "max_frame_bytes was 10000" in refusal(session).message


def test_what_came_before_a_breach_is_still_reported(session: Session) -> None:
    events = tell(session, frames.batch(1, 5, 1, b"good"), Frame())
    assert [type(event) for event in events] == [BatchArrived, Closed]


# --- what is said ---


def test_a_revocation_before_accepted_silences_it() -> None:
    session = new()
    tell(session, HELLO, ASSIGN, frames.revoke(1, 5))
    session.accept(1, 10, None)
    session.release(1, None)
    assert kinds(session) == ["welcome", "released"]


def test_schemas_are_learnt_once(session: Session) -> None:
    tell(session, frames.schema(SCHEMA), frames.schema(SCHEMA))
    assert session.schema(SCHEMA.id) == SCHEMA
    with pytest.raises(KeyError):
        session.schema(1)


# --- time ---


def test_heartbeats_are_sent_when_nothing_else_was(session: Session) -> None:
    session.take_output(0.0)
    assert session.deadline() == 1.0
    assert session.tick(0.9) == []
    assert session.take_output(0.9) is None
    session.tick(1.0)
    (frame,) = said(session, now=1.0)
    assert frame.heartbeat.number == 1
    assert session.report_due(1.0)
    assert session.deadline() == 2.0


# --- skip, park, report ---


def test_an_assignment_tells_what_is_passed_over_and_parked() -> None:
    told, _ = letter(5)
    assign = frames.assign(
        1, 5, "app", "s", marker_at(0), skip=["s:1:0"], park=True, parked=[(told.rows[0], told.place)]
    )
    _, event = tell(new(), HELLO, assign)
    assert isinstance(event, Assigned)
    assert (event.skip, event.park, event.parked) == (("s:1:0",), True, ((told.rows[0], told.place),))


def test_an_update_is_parked_in_pieces_that_a_publisher_takes_and_in_order(session: Session) -> None:
    told, parcel = letter(5)
    large = Parcel(parcel.schema, bytes(range(256)) * (3 << 12))
    session.park(1, told.id, large, told.place, "no")
    session.progress(1, 0)
    sizes: list[int] = []
    parts: list[push_pb2.SubscriberFrame] = []
    while (data := session.take_output(0.0)) is not None:
        sizes.append(len(data))
        parts += push_pb2.SubscriberMessage.FromString(data).frames
    assert max(sizes) < 4 << 20
    assert [frame.WhichOneof("kind") for frame in parts] == ["park"] * 3 + ["progress"]
    assert [frame.park.more for frame in parts[:3]] == [True, True, False]
    assert b"".join(frame.park.body for frame in parts[:3]) == large.body
    last = parts[2].park
    assert (last.update_id, last.schema, last.error) == (told.id, parcel.schema, "no")
    assert last.place == place_to_message(told.place)


def test_the_answer_to_a_parked_update(session: Session) -> None:
    (event,) = tell(session, frames.parked(1, 5, "s:1:0", "full"))
    assert event == ParkAnswered(1, "s:1:0", "full")
    session.fail(1, push_pb2.Failed.HANDLER, "", "")
    assert tell(session, frames.parked(1, 5, "s:1:0")) == []
    assert session.dropped == 1


def test_reports_are_due_about_once_a_heartbeat_and_say_only_what_is_new(session: Session) -> None:
    assert not session.report_due(0.9)
    assert session.report_due(1.5)
    assert not session.report_due(2.4)
    assert session.report_due(2.5)
    told = push_pb2.HandlerReport(updates=3)
    for report in (told, told, push_pb2.HandlerReport(updates=4)):
        session.report(1, report)
    assert [frame.report.handler.updates for frame in said(session)] == [3, 4]


def test_silence_ends_the_stream_after_three_heartbeats(session: Session) -> None:
    tell(session, Frame(heartbeat=push_pb2.Heartbeat()), now=2.0)
    assert session.tick(4.9) == []
    (event,) = session.tick(5.0)
    assert isinstance(event, Closed)
    assert "nothing heard" in event.cause


def test_a_connection_that_never_says_hello_is_closed() -> None:
    session = new(now=100.0)
    assert session.deadline() == 110.0
    assert session.tick(109.0) == []
    session.tick(110.0)
    assert "no Hello" in refusal(session).message


def test_the_union_has_every_event() -> None:
    named = {getattr(events, name) for name in events.__all__ if name not in ("Event", "FlowEvent")}
    assert set(get_args(events.Event)) == named


def test_the_memory_that_an_assignment_takes_makes_it_no_other_one() -> None:
    one = events.Assigned(1, 2, "shop", marker_at(1), replayed=False, size=10)
    assert one == events.Assigned(1, 2, "shop", marker_at(1), replayed=False, size=20)


# --- hostile ---


@given(st.binary(max_size=200))
def test_any_bytes_give_events_or_one_refusal(data: bytes) -> None:
    session = opened()
    events = session.receive(data, 0.0)
    closed = [event for event in events if isinstance(event, Closed)]
    assert len(closed) == session.closed
    assert not closed or events[-1] is closed[0]


SOME_FRAMES = st.lists(
    st.one_of(
        st.sampled_from(list(FLOW_FRAMES)).flatmap(lambda kind: st.integers(3, 7).map(FLOW_FRAMES[kind])),
        st.builds(
            frames.batch,
            st.integers(0, 3),
            st.integers(4, 6),
            st.integers(0, 4),
            st.binary(max_size=5),
        ),
    ),
    max_size=8,
)


@given(SOME_FRAMES, st.data())
def test_any_frames_cut_anywhere_give_events_or_one_refusal(given_frames: list[Frame], data: st.DataObject) -> None:
    message = push_pb2.PublisherMessage(frames=given_frames).SerializeToString()
    end = data.draw(st.integers(0, len(message)))
    session = opened()
    session.receive(message[:end], 0.0)
    goodbyes = [kind for kind in kinds(session) if kind == "goodbye"]
    assert len(goodbyes) <= 1
    assert bool(goodbyes) <= session.closed


# --- within the bounds of publishers ---


def test_a_long_error_is_reported_shortened(session: Session) -> None:
    session.fail(1, push_pb2.Failed.HANDLER, "a:1:0", "x" * 1_000_000)
    (frame,) = said(session)
    assert frame.failed.message == "x" * 1000 + "... (1000000 characters)"


# --- verify frames ---


def greeted(*, verifies: bool = True) -> tuple[Session, push_pb2.Welcome]:
    able = Abilities(verifies=verifies)
    session = Session(Admission("app", "one"), max_frame_bytes=10_000, max_body_bytes=1000, now=0.0, abilities=able)
    tell(session, frames.hello("app", "one"))
    (frame,) = said(session)
    return session, frame.welcome


def assign(verify: int, generation: int = 2) -> push_pb2.PublisherFrame:
    frame = frames.assign(1, 5, "app", "s", marker_at(0), generation=generation)
    frame.assign.verify = verify  # type: ignore[assignment]
    return frame


@pytest.mark.parametrize("verifies", [True, False])
def test_the_welcome_says_whether_the_application_verifies(*, verifies: bool) -> None:
    _, welcome = greeted(verifies=verifies)
    assert welcome.verifies is verifies


@pytest.mark.parametrize(
    ("sent", "mode"),
    [
        (push_pb2.VERIFY_NONE, VerifyMode.NONE),
        (push_pb2.VERIFY_COMPARE, VerifyMode.COMPARE),
        (push_pb2.VERIFY_REPAIR, VerifyMode.REPAIR),
    ],
)
def test_an_assignment_has_the_mode(sent: push_pb2.Verify, mode: VerifyMode) -> None:
    session, _ = greeted()
    (event,) = tell(session, assign(sent))
    assert isinstance(event, Assigned)
    assert event.verify is mode


@pytest.mark.parametrize(
    ("frame", "verifies", "why"),
    [
        (assign(7), True, "assign.verify: 7; this release knows 0 to 2"),
        (assign(push_pb2.VERIFY_COMPARE), False, "assign.verify: 1; this flow cannot be verified"),
        (assign(push_pb2.VERIFY_REPAIR, generation=0), True, "assign.verify: 2; this flow cannot be verified"),
    ],
)
def test_another_mode_breaks_the_protocol(frame: push_pb2.PublisherFrame, why: str, *, verifies: bool) -> None:
    session, _ = greeted(verifies=verifies)
    tell(session, frame)
    (last,) = said(session)
    assert why in last.goodbye.message


def test_results_name_their_flow_and_epoch() -> None:
    session, _ = greeted()
    tell(session, assign(push_pb2.VERIFY_COMPARE))
    session.accept(1, 1000, None)
    session.verified(1, push_pb2.Verified(table="users", compared=3))
    assert said(session)[-1].verified == push_pb2.Verified(flow=1, epoch=5, table="users", compared=3)
