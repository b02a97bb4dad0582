"""What an operator sees of a flow, and what stays when nobody receives it."""

from __future__ import annotations

from caravan.flow import Flow, FlowState
from publisher.push.feed import Feed, FeedState
from wormhole.filters import Filter
from wormhole.host.logs import FIELDS
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.marker_store import FlowControl, ReplayControl, ReplayState

START = Datamarker(LogPosition(1, 1, 0), "0", LogPosition(1, 1, 0))
ALL = Filter.parse(None)


def feed() -> Feed:
    return Feed("app", "log", ALL, START, START.order)


def open_feed() -> tuple[Feed, Flow]:
    one = feed()
    one.flow = Flow("app", "log", ALL, START, 1, lambda: None)
    one.subscriber = "s1"
    return one, one.flow


def test_states() -> None:
    one = feed()
    assert one.state(frozenset()) is FeedState.UNASSIGNED
    one.opening = True
    assert one.state(frozenset()) is FeedState.OPENING
    one.stands_at = object()
    assert one.state(frozenset()) is FeedState.HELD
    one, flow = open_feed()
    assert one.state(frozenset()) is FeedState.CATCHING_UP
    assert one.state(frozenset({"app/log"})) is FeedState.LIVE
    flow.leave(FlowState.HELD, "a loss")
    assert one.state(frozenset({"app/log"})) is FeedState.HELD
    one.releasing = True
    assert one.state(frozenset()) is FeedState.RELEASING


def test_paused_is_told_once_nobody_has_it() -> None:
    one, _ = open_feed()
    one.control = FlowControl("maria since noon")
    assert one.state(frozenset({"app/log"})) is FeedState.LIVE
    one.releasing = True
    assert one.state(frozenset()) is FeedState.RELEASING
    one.given_up("released")
    assert one.state(frozenset()) is FeedState.PAUSED
    one.stands_at = object()
    assert one.state(frozenset()) is FeedState.PAUSED


def test_what_a_replay_has_is_not_anybodys() -> None:
    one, _ = open_feed()
    one.control = FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, ""))
    one.releasing = True
    assert one.state(frozenset()) is FeedState.RELEASING
    one.given_up("released")
    assert one.state(frozenset()) is FeedState.REPLAYING
    one.control = FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "", ReplayState.NEEDS_REPLAY))
    assert one.state(frozenset()) is FeedState.NEEDS_REPLAY


def test_giving_up_remembers_how_far_it_was_sent() -> None:
    one, flow = open_feed()
    flow.place = LogPosition(1, 1, 50)
    one.loss = (LogGap(LossKind.PURGED, "", "", "m"), START)
    one.releasing = True
    one.given_up("its stream ended")
    assert one.sent_until == flow.place
    assert one.state(frozenset()) is FeedState.UNASSIGNED
    assert one.cause == "its stream ended"
    one.flow = Flow("app", "log", ALL, START, 2, lambda: None)
    one.given_up("again")
    assert one.sent_until == flow.place


def test_names() -> None:
    one = feed()
    assert (one.name, one.key) == ("app/log", ("app", "log"))
    assert repr(one) == "<Feed app/log epoch 0 at 1/1/0 (0) for nobody>"


def test_what_a_log_line_about_it_names() -> None:
    one, flow = open_feed()
    one.epoch = 3
    flow.place = LogPosition(1, 2, 7)
    assert one.about == {"flow": "app/log", "shard": "log", "place": "1/2/7", "epoch": 3, "subscriber": "s1"}
    assert set(one.about) <= set(FIELDS)
    assert feed().about["place"] == "1/1/0"
