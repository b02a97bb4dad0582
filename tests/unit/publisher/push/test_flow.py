"""What an operator sees of a flow, and what stays when nobody receives it."""

from __future__ import annotations

from caravan.flow import CaravanFlow
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from scripts.prepare import ROOT
from tests.support.assigned import assigned_elsewhere
from wormhole.filters import Filter
from wormhole.host.logs import FIELDS
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.ports.marker_store import FlowControl, ReplayControl, ReplayState

START = Datamarker(LogPosition(1, 1, 0), "0", LogPosition(1, 1, 0))
ALL = Filter.parse(None)
GAP = LogGap(LossKind.PURGED, "", "", "m")
OTHERS = {"after", "encoder", "error", "hello", "message", "reply", "run", "segment", "traffic"}


def flow() -> PublisherFlow:
    return PublisherFlow("app", "log", ALL, START, START.order)


def open_flow() -> tuple[PublisherFlow, CaravanFlow]:
    one = flow()
    one.assign("s1", 0.0)
    caravan_flow = CaravanFlow("app", "log", ALL, START, 1, lambda: None)
    one.begin(caravan_flow)
    return one, caravan_flow


def test_states() -> None:
    one = flow()
    assert one.state(frozenset()) is PublisherFlowState.UNASSIGNED
    one.assign("s1", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.OPENING
    one.halt("no such user", "s1", object(), "")
    assert one.state(frozenset()) is PublisherFlowState.HELD
    one, _ = open_flow()
    assert one.state(frozenset()) is PublisherFlowState.CATCHING_UP
    assert one.state(frozenset({"app/log"})) is PublisherFlowState.LIVE
    one.hold(Problem("a loss"))
    assert one.state(frozenset({"app/log"})) is PublisherFlowState.HELD
    one.recall("moves", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.RELEASING


def test_paused_is_reported_once_nobody_has_it() -> None:
    one, _ = open_flow()
    one.controlled(FlowControl("maria since noon"))
    assert one.state(frozenset({"app/log"})) is PublisherFlowState.LIVE
    one.recall("paused", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.RELEASING
    one.halt("no such user", "s1", object(), "")
    assert one.state(frozenset()) is PublisherFlowState.PAUSED
    one.resume()
    assert one.state(frozenset()) is PublisherFlowState.PAUSED


def test_what_a_replay_has_is_not_anybodys() -> None:
    one, _ = open_flow()
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "")))
    one.recall("is replayed", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.RELEASING
    one.release("released")
    assert one.state(frozenset()) is PublisherFlowState.REPLAYING
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "", ReplayState.NEEDS_REPLAY)))
    assert one.state(frozenset()) is PublisherFlowState.NEEDS_REPLAY


def test_a_flow_without_a_record_is_held() -> None:
    one = flow()
    one.found_unreadable(True)
    one.explain("its record cannot be read")
    assert one.state(frozenset()) is PublisherFlowState.HELD


def test_releasing_remembers_how_far_it_was_sent() -> None:
    one, caravan_flow = open_flow()
    caravan_flow.place = LogPosition(1, 1, 50)
    one.ask(GAP, START)
    one.recall("moves", 0.0)
    one.release("its stream ended")
    assert one.sent_until == caravan_flow.place
    assert one.state(frozenset()) is PublisherFlowState.UNASSIGNED
    assert (one.cause, one.loss, one.losses) == ("its stream ended", None, 1)
    one.assign("s1", 0.0)
    one.begin(CaravanFlow("app", "log", ALL, START, 2, lambda: None))
    one.release("again")
    assert one.sent_until == caravan_flow.place


def test_it_is_asked_to_release_once() -> None:
    one, _ = open_flow()
    one.recall("moves", 1.0)
    one.recall("the publisher stops", 2.0)
    assert (one.asked_at, one.cause) == (1.0, "the publisher stops")


def test_a_loss_is_open_until_somebody_accepts_it() -> None:
    one, _ = open_flow()
    one.ask(GAP, START)
    one.decline(Problem("held"))
    assert (one.loss, one.state(frozenset())) == ((GAP, START), PublisherFlowState.HELD)
    one.accept(back=True)
    assert (one.loss, one.state(frozenset())) == (None, PublisherFlowState.HELD)
    one, _ = open_flow()
    one.ask(GAP, START)
    one.accept(back=False)
    assert (one.loss, one.state(frozenset())) == (None, PublisherFlowState.CATCHING_UP)


def test_names() -> None:
    one = flow()
    assert (one.name, one.key) == ("app/log", ("app", "log"))
    assert repr(one) == "<PublisherFlow app/log epoch 0 at 1/1/0 (0) for nobody>"


def test_what_a_log_line_about_it_names() -> None:
    one, caravan_flow = open_flow()
    one.raised(3)
    caravan_flow.place = LogPosition(1, 2, 7)
    assert one.about == {"flow": "app/log", "shard": "log", "place": "1/2/7", "epoch": 3, "subscriber": "s1"}
    assert set(one.about) <= set(FIELDS)
    assert flow().about["place"] == "1/1/0"


def test_nobody_else_assigns_its_attributes() -> None:
    attributes = vars(flow())
    assert {"stage", "cause", "epoch", "caravan_flow"} <= attributes.keys()
    assert assigned_elsewhere([ROOT / "publisher"], attributes, OTHERS) == []
