"""What an operator sees of a flow, and what stays when nobody receives it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import publisher
from caravan.flow import Flow
from publisher.push.feed import Feed
from publisher.push.stages import FeedState
from wormhole.filters import Filter
from wormhole.host.logs import FIELDS
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.marker_store import FlowControl, ReplayControl, ReplayState

START = Datamarker(LogPosition(1, 1, 0), "0", LogPosition(1, 1, 0))
ALL = Filter.parse(None)
GAP = LogGap(LossKind.PURGED, "", "", "m")
NO_FEEDS = {"self", "after", "encoder", "hello", "reply", "run", "segment", "told", "traffic"}


def feed() -> Feed:
    return Feed("app", "log", ALL, START, START.order)


def open_feed() -> tuple[Feed, Flow]:
    one = feed()
    one.assign("s1", 0.0)
    flow = Flow("app", "log", ALL, START, 1, lambda: None)
    one.begin(flow)
    return one, flow


def test_states() -> None:
    one = feed()
    assert one.state(frozenset()) is FeedState.UNASSIGNED
    one.assign("s1", 0.0)
    assert one.state(frozenset()) is FeedState.OPENING
    one.halt("no such user", "s1", object(), "")
    assert one.state(frozenset()) is FeedState.HELD
    one, _ = open_feed()
    assert one.state(frozenset()) is FeedState.CATCHING_UP
    assert one.state(frozenset({"app/log"})) is FeedState.LIVE
    one.hold("a loss")
    assert one.state(frozenset({"app/log"})) is FeedState.HELD
    one.recall("moves", 0.0)
    assert one.state(frozenset()) is FeedState.RELEASING


def test_paused_is_told_once_nobody_has_it() -> None:
    one, _ = open_feed()
    one.controlled(FlowControl("maria since noon"))
    assert one.state(frozenset({"app/log"})) is FeedState.LIVE
    one.recall("paused", 0.0)
    assert one.state(frozenset()) is FeedState.RELEASING
    one.halt("no such user", "s1", object(), "")
    assert one.state(frozenset()) is FeedState.PAUSED
    one.resume()
    assert one.state(frozenset()) is FeedState.PAUSED


def test_what_a_replay_has_is_not_anybodys() -> None:
    one, _ = open_feed()
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "")))
    one.recall("is replayed", 0.0)
    assert one.state(frozenset()) is FeedState.RELEASING
    one.release("released")
    assert one.state(frozenset()) is FeedState.REPLAYING
    one.controlled(FlowControl(replay=ReplayControl("r1", "maria", "log", 0.0, 30.0, "", ReplayState.NEEDS_REPLAY)))
    assert one.state(frozenset()) is FeedState.NEEDS_REPLAY


def test_a_flow_without_a_record_is_held() -> None:
    one = feed()
    one.found_unreadable(True)
    one.explain("its record cannot be read")
    assert one.state(frozenset()) is FeedState.HELD


def test_releasing_remembers_how_far_it_was_sent() -> None:
    one, flow = open_feed()
    flow.place = LogPosition(1, 1, 50)
    one.ask(GAP, START)
    one.recall("moves", 0.0)
    one.release("its stream ended")
    assert one.sent_until == flow.place
    assert one.state(frozenset()) is FeedState.UNASSIGNED
    assert (one.cause, one.loss, one.losses) == ("its stream ended", None, 1)
    one.assign("s1", 0.0)
    one.begin(Flow("app", "log", ALL, START, 2, lambda: None))
    one.release("again")
    assert one.sent_until == flow.place


def test_it_is_asked_to_release_once() -> None:
    one, _ = open_feed()
    one.recall("moves", 1.0)
    one.recall("the publisher stops", 2.0)
    assert (one.asked_at, one.cause) == (1.0, "the publisher stops")


def test_a_loss_is_open_until_somebody_accepts_it() -> None:
    one, _ = open_feed()
    one.ask(GAP, START)
    one.decline("held")
    assert (one.loss, one.state(frozenset())) == ((GAP, START), FeedState.HELD)
    one.accept(back=True)
    assert (one.loss, one.state(frozenset())) == (None, FeedState.HELD)
    one, _ = open_feed()
    one.ask(GAP, START)
    one.accept(back=False)
    assert (one.loss, one.state(frozenset())) == (None, FeedState.CATCHING_UP)


def test_names() -> None:
    one = feed()
    assert (one.name, one.key) == ("app/log", ("app", "log"))
    assert repr(one) == "<Feed app/log epoch 0 at 1/1/0 (0) for nobody>"


def test_what_a_log_line_about_it_names() -> None:
    one, flow = open_feed()
    one.raised(3)
    flow.place = LogPosition(1, 2, 7)
    assert one.about == {"flow": "app/log", "shard": "log", "place": "1/2/7", "epoch": 3, "subscriber": "s1"}
    assert set(one.about) <= set(FIELDS)
    assert feed().about["place"] == "1/1/0"


def test_only_the_feed_assigns_its_attributes() -> None:
    """An attribute of such a name is assigned in `publisher/` on nothing but what is known to be no feed."""
    attributes = set(vars(feed()))
    assert {"stage", "cause", "epoch", "flow"} <= attributes
    found = []
    for path in Path(inspect.getfile(publisher)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store | ast.Del)
                and node.attr in attributes
            ):
                owner = ast.unparse(node.value).rpartition(".")[2]
                if owner not in NO_FEEDS:
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
