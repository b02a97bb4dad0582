"""A stream joined to flows: what a closed stream no longer says."""

from __future__ import annotations

import logging

import pytest

from subscriber_sdk.testing import body_of, frames, update
from tests.support.flows import Idle, NewWorld
from wormhole.wire.v1 import push_pb2


async def test_goodbye_ends_the_flows_without_an_answer(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world, publisher = new_world(Idle())
    await world.open(publisher)
    publisher.received.clear()
    publisher.send(push_pb2.PublisherFrame(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING)))
    await world.shards.settled()
    assert publisher.closed
    assert publisher.received == []
    assert not world.shards.workers()
    assert "goodbye (LEAVING)" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_silence_ends_the_flows(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world, publisher = new_world(Idle())
    await world.open(publisher)
    publisher.connection.tick(3.0)
    await world.shards.settled()
    assert publisher.closed
    assert not world.shards.workers()
    assert [record.levelname for record in caplog.records if "nothing heard" in record.getMessage()] == ["WARNING"]


async def test_what_needs_no_answer_wakes_nobody(new_world: NewWorld) -> None:
    world, publisher = new_world(Idle())
    change = update("t", key=1)
    publisher.teach([change.schema])
    await world.open(publisher)
    woken: list[None] = []
    publisher.connection._output = lambda: woken.append(None)
    publisher.connection._soon = lambda: None
    data = push_pb2.PublisherMessage(frames=[frames.batch(1, 1, 1, body_of([change]))]).SerializeToString()
    publisher.connection.receive(data, 0.0)
    assert not woken
    await world.shards.settled()
    assert publisher.connection.take_output(0.0) is not None, "its progress"


async def test_leaving_twice_says_goodbye_once(new_world: NewWorld) -> None:
    _, publisher = new_world(Idle())
    publisher.connection.leave()
    publisher.connection.leave()
    assert len(publisher.take("goodbye")) == 1
