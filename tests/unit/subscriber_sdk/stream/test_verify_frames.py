"""How a stream says that an application verifies, and opens a flow whose rows are compared."""

from __future__ import annotations

import pytest

from subscriber_sdk.options.admission import Admission
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import Abilities
from subscriber_sdk.stream.session import Session
from subscriber_sdk.testing import frames, marker_at
from tests.unit.subscriber_sdk.stream.test_session import said, tell
from wormhole.model.verification import VerifyMode
from wormhole.wire.v1 import push_pb2


def greeted(*, verifies: bool = True, version: int = 3) -> tuple[Session, push_pb2.Welcome]:
    able = Abilities(verifies=verifies)
    session = Session(Admission("app", "one"), max_frame_bytes=10_000, max_body_bytes=1000, now=0.0, abilities=able)
    tell(session, frames.hello("app", "one", max_version=version))
    (frame,) = said(session)
    return session, frame.welcome


def assign(verify: int, generation: int = 2) -> push_pb2.PublisherFrame:
    frame = frames.assign(1, 5, "app", "s", marker_at(0), generation=generation)
    frame.assign.verify = verify  # type: ignore[assignment]
    return frame


@pytest.mark.parametrize(("verifies", "version", "expected"), [(True, 3, True), (False, 3, False), (True, 2, False)])
def test_the_welcome_says_whether_the_application_verifies(*, verifies: bool, version: int, expected: bool) -> None:
    _, welcome = greeted(verifies=verifies, version=version)
    assert welcome.verifies is expected


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
