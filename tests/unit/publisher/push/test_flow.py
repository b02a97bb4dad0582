"""What an operator sees of a flow, and what stays when nobody receives it."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import cast

import pytest

from caravan.buffer import ChangeBuffer
from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, Piece
from publisher.flows.lag_and_headroom import FlowLag, LogWatch
from publisher.push.delivery import FlowDelivery
from publisher.push.flow import PublisherFlow
from publisher.push.holding import FlowHolding
from publisher.push.loss import FlowLoss
from publisher.push.obstacles import ask_about_gap
from publisher.push.parking import FlowParking
from publisher.push.stages import PublisherFlowState
from scripts.prepare import ROOT
from tests.support.assigned import assigned_elsewhere
from tests.support.present import present
from wormhole.filters import Filter
from wormhole.host.logs import FIELDS
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.segment import Segment
from wormhole.ports.log_source import SourceStatus
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


@pytest.fixture
def one() -> PublisherFlow:
    return open_flow()[0]


@pytest.fixture
def caravan_flow(one: PublisherFlow) -> CaravanFlow:
    return present(one.delivery.caravan_flow)


def test_log_is_kept_for_what_is_acknowledged_or_sent_and_not_stored(
    one: PublisherFlow, caravan_flow: CaravanFlow
) -> None:
    assert one.delivery.needed == START.read_from
    early, earlier = LogPosition(1, 0, 8), LogPosition(1, 0, 7)
    acked = Datamarker(LogPosition(1, 1, 5), "1", early)
    one.acked(acked)
    assert one.delivery.needed == early
    caravan_flow.pass_gap(Datamarker(LogPosition(1, 1, 9), "2", earlier))
    assert one.delivery.needed == earlier
    stored = Datamarker(LogPosition(1, 1, 10), "3", LogPosition(1, 1, 9))
    one.delivery.stored(stored, 1)
    assert one.delivery.needed == stored.read_from


def test_a_flow_that_went_over_to_another_history_is_not_behind_by_the_age_of_its_last_commit(
    one: PublisherFlow, caravan_flow: CaravanFlow
) -> None:
    acknowledged = Datamarker(LogPosition(1, 1, 5), "1", LogPosition(1, 1, 5), committed_at_us=1_000_000)
    one.acked(acknowledged)
    assert one.delivery.acknowledged_to == acknowledged
    end = LogPosition(2, 1, 700)
    watch = LogWatch()
    watch.measured(SourceStatus(end, LogPosition(2, 1, 4), 0), 0.0)
    assert watch.lag("log", one.delivery.acknowledged_to, 90.0).seconds == 89.0, (
        "what follows it there is not known yet"
    )
    caravan_flow.go_over(Datamarker(end, "1", end))
    assert watch.lag("log", one.delivery.acknowledged_to, 90.0) == FlowLag(0.0, 0, 0)
    # What follows there is not acknowledged, wherever the flow is.
    caravan_flow.place = LogPosition(2, 1, 900)
    watch.measured(SourceStatus(LogPosition(2, 1, 900), LogPosition(2, 1, 4), 0), 1.0)
    assert watch.lag("log", one.delivery.acknowledged_to, 90.0).seconds == 89.0
    later = Datamarker(LogPosition(2, 1, 900), "2", LogPosition(2, 1, 900), committed_at_us=2_000_000)
    one.acked(later)
    assert one.delivery.acknowledged_to == later


@pytest.mark.parametrize("acknowledged", [False, True])
def test_log_is_kept_for_existing_rows_that_come_where_the_flow_begins(
    acknowledged: bool, one: PublisherFlow, caravan_flow: CaravanFlow
) -> None:
    """Their datamarker is the lead's: the same place as `latest`, with the transaction before as its anchor."""
    early = LogPosition(1, 0, 8)
    rows = Datamarker(START.order, "0", early)
    if acknowledged:
        one.acked(rows)
    else:
        caravan_flow.pass_gap(rows)
    assert one.delivery.needed == early
    one.delivery.stored(rows, 1)
    assert one.delivery.needed == early


def test_log_is_kept_no_longer_for_what_was_stored_long_ago(one: PublisherFlow, caravan_flow: CaravanFlow) -> None:
    """An idle place is proven by bytes that may lie before the last transaction: then a datamarker is read from an
    earlier place than the one before it, again and again."""

    def comes_to(order: int, read_from: int) -> Datamarker:
        marker = Datamarker(LogPosition(1, 1, order), str(order), LogPosition(1, 1, read_from))
        caravan_flow.pass_gap(marker)
        return marker

    for at in range(10_000, 60_000, 100):
        stored = comes_to(at, at)
        one.acked(stored)
        one.delivery.stored(stored, 1)
        comes_to(at + 2, at + 1)
        comes_to(at + 3, at - 5)
        assert one.delivery.needed.offset == at - 5
    for at in range(60_000, 70_000, 100):
        comes_to(at, at)
        comes_to(at + 1, at - 5)
        assert one.delivery.needed.offset == 59_895
    last = comes_to(80_000, 80_000)
    one.delivery.stored(last, 1)
    assert one.delivery.needed == last.read_from


def test_where_log_continues_after_a_gap_is_proven_by_what_the_reader_found_there() -> None:
    begin = LogPosition(1, 1, 9)
    proof = Anchor("log:7:1:9", 5, LogPosition(1, 1, 3))
    here = Datamarker(begin, "9", proof.begin, proof)
    later = Datamarker(LogPosition(1, 1, 12), "12", begin, replace(proof, begin=begin))
    for marker, anchor, read_from in ((here, proof, proof.begin), (later, None, begin)):
        one, caravan_flow = open_flow()
        buffer = ChangeBuffer(START.order)
        buffer.append(Segment(begin, marker.order, {}, marker, 0, gap=GAP))
        caravan_flow.board(buffer, 0)
        caravan = SimpleNamespace(buffer=buffer)
        fleet = SimpleNamespace(caravan_of=lambda _, caravan=caravan: caravan, hold=lambda *_: None)
        _, resume = ask_about_gap(cast("Fleet", fleet), one, caravan_flow, Piece(None, None, GAP))
        assert (resume.order, resume.anchor, resume.read_from) == (begin, anchor, read_from)


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
    without_record = flow()
    without_record.loss.found_unreadable(True)
    without_record.explain(Problem("its record cannot be read"))
    assert without_record.state(frozenset()) is PublisherFlowState.HELD


def test_paused_is_reported_once_nobody_has_it(one: PublisherFlow) -> None:
    one.controlled(FlowControl("maria since noon"))
    assert one.state(frozenset({"app/log"})) is PublisherFlowState.LIVE
    one.recall("paused", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.RELEASING
    one.halt("no such user", "s1", object(), "")
    assert one.state(frozenset()) is PublisherFlowState.PAUSED
    one.resume()
    assert one.state(frozenset()) is PublisherFlowState.PAUSED


def test_what_a_replay_has_is_not_anybodys(one: PublisherFlow) -> None:
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "")))
    one.recall("is replayed", 0.0)
    assert one.state(frozenset()) is PublisherFlowState.RELEASING
    one.release("released")
    assert one.state(frozenset()) is PublisherFlowState.REPLAYING
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "", ReplayState.NEEDS_REPLAY)))
    assert one.state(frozenset()) is PublisherFlowState.NEEDS_REPLAY


def test_releasing_remembers_how_far_it_was_sent(one: PublisherFlow, caravan_flow: CaravanFlow) -> None:
    caravan_flow.place = LogPosition(1, 1, 50)
    one.ask(GAP, START)
    one.recall("moves", 0.0)
    one.release("its stream ended")
    assert one.delivery.sent_until == caravan_flow.place
    assert one.state(frozenset()) is PublisherFlowState.UNASSIGNED
    assert (one.cause, one.loss.open, one.loss.count) == ("its stream ended", None, 1)
    one.assign("s1", 0.0)
    one.begin(CaravanFlow("app", "log", ALL, START, 2, lambda: None))
    one.release("again")
    assert one.delivery.sent_until == caravan_flow.place


def test_it_is_asked_to_release_once(one: PublisherFlow) -> None:
    one.recall("moves", 1.0)
    one.recall("the publisher stops", 2.0)
    assert (one.holding.asked_at, one.cause) == (1.0, "the publisher stops")


def test_a_loss_is_open_until_somebody_accepts_it() -> None:
    one, _ = open_flow()
    one.ask(GAP, START)
    one.decline(Problem("held"))
    assert (one.loss.open, one.state(frozenset())) == ((GAP, START), PublisherFlowState.HELD)
    one.accept(back=True)
    assert (one.loss.open, one.state(frozenset())) == (None, PublisherFlowState.HELD)
    one, _ = open_flow()
    one.ask(GAP, START)
    one.accept(back=False)
    assert (one.loss.open, one.state(frozenset())) == (None, PublisherFlowState.CATCHING_UP)


def test_names() -> None:
    one = flow()
    assert (one.name, one.key) == ("app/log", ("app", "log"))
    assert repr(one) == "<PublisherFlow app/log epoch 0 at 1/1/0 (0) for none>"


def test_what_a_log_line_about_it_names(one: PublisherFlow, caravan_flow: CaravanFlow) -> None:
    one.holding.raised(3)
    caravan_flow.place = LogPosition(1, 2, 7)
    assert one.about == {"flow": "app/log", "shard": "log", "place": "1/2/7", "epoch": 3, "subscriber": "s1"}
    assert set(one.about) <= set(FIELDS)
    assert flow().about["place"] == "1/1/0"


def test_nobody_else_assigns_its_attributes() -> None:
    values = (FlowHolding, FlowDelivery, FlowParking, FlowLoss)
    attributes = {*vars(flow()), *(field.name for value in values for field in fields(value))}
    assert {"stage", "problem", "epoch", "caravan_flow"} <= attributes
    assert assigned_elsewhere([ROOT / "publisher"], attributes, OTHERS) == []


def test_an_application_has_only_what_it_was_offered() -> None:
    def marker(offset: int) -> Datamarker:
        order = LogPosition(1, 1, offset)
        return Datamarker(order, str(offset), order)

    first, second, third, never = (marker(offset) for offset in (10, 20, 30, 25))
    flow = PublisherFlow("app", "log", Filter.parse(None), first, third.order)
    assert flow.delivery.may_have(third), "by an earlier process, as far as is known"
    assert not flow.delivery.may_have(marker(31)), "nothing was sent behind it"
    proven = replace(marker(31), anchor=Anchor("t:31", 7, LogPosition(1, 1, 30)))
    assert flow.delivery.may_have(proven), "the log shows whether the application had it"
    flow.delivery.offers(second)
    assert [flow.delivery.was_offered(one) for one in (first, second, third, never)] == [True, True, False, False]
    assert flow.delivery.may_have(marker(5)), "it asks for more than it needs"
    assert not flow.delivery.was_offered(replace(second, delivered="9" * 500_000))
    assert not flow.delivery.was_offered(replace(first, delivered="x"))


def test_a_datamarker_is_set_back_also_from_one_that_is_not_stored_yet(one: PublisherFlow) -> None:
    one.acked(replace(START, order=LogPosition(1, 8, 0)))
    one.moved(2, START, 2)
    assert one.delivery.rewound


def test_a_set_datamarker_that_is_no_move_sets_back_only_what_is_stored(one: PublisherFlow) -> None:
    """What was acknowledged meanwhile stays, or it would be delivered again in each epoch."""
    later = replace(START, order=LogPosition(1, 8, 0))
    one.acked(later)
    one.moved(2, START, 0)
    assert not one.delivery.rewound
    one.delivery.stored(later, 2)
    one.moved(3, START, 0)
    assert one.delivery.rewound
