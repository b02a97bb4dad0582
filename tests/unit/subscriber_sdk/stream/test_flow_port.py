"""The promise of the port, held by the one of a real stream: once the flow is not the stream's any more, nothing is
said of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.stream.counts import Counts
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.testing import ScriptedPublisher, frames, marker_at
from subscriber_sdk.work.shards import Shards
from tests.support.flows import Idle
from tests.support.letters import letter
from wormhole.model.errors import ProtocolError
from wormhole.wire.v1 import push_pb2

ANSWERS: dict[str, Callable[[FlowPort], object]] = {
    "accept": lambda port: port.accept(1000, None, Counts()),
    "progress": lambda port: port.progress(1),
    "ack": lambda port: port.ack(marker_at(1)),
    "release": lambda port: port.release(None),
    "fail": lambda port: port.fail(push_pb2.Failed.HANDLER, "", "no"),
    "park": lambda port: port.park("a:1", letter(5)[1], letter(5)[0].place, ""),
    "verified": lambda port: port.verified(push_pb2.Verified(table="users")),
    "decide_loss": lambda port: port.decide_loss(proceed=True),
    "refuse": lambda port: port.refuse(ProtocolError("no")),
}


class Kept(Shards):
    """Takes no flow: the test answers in its place."""

    port: FlowPort

    def assign(self, port: FlowPort, assigned: Assigned) -> None:
        self.port = port


def test_every_method_is_asked() -> None:
    methods = {name for name, value in vars(FlowPort).items() if inspect.isfunction(value) and name[0] != "_"}
    assert methods == {*ANSWERS, "schema", "hold"}


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_nothing_is_said_of_a_flow_that_is_not_the_streams_any_more(name: str, gone: bool) -> None:
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Kept(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"), frames.assign(1, 1, "app", "s", marker_at(0)))
    port: Any = shards.port
    if name == "progress":
        port.accept(1000, None, Counts())
    if gone:
        publisher.send(frames.assign(1, 2, "app", "s", marker_at(0)))
    publisher.received.clear()
    ANSWERS[name](port)
    assert bool(publisher.received) != gone
