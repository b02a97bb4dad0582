"""A stream joined to flows: what a closed stream no longer says."""

from __future__ import annotations

import logging

import pytest

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.testing import ScriptedPublisher, body_of, frames, marker_at, update
from subscriber_sdk.work.shards import Shards
from wormhole.wire.v1 import push_pb2


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


def world() -> tuple[Shards, ScriptedPublisher]:
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Shards(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"))
    return shards, publisher


async def test_goodbye_ends_the_flows_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shards, publisher = world()
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0)))
    await shards.settled()
    publisher.received.clear()
    publisher.send(push_pb2.PublisherFrame(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING)))
    await shards.settled()
    assert publisher.closed
    assert publisher.received == []
    assert not shards.workers()
    assert "goodbye (LEAVING)" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    await shards.close()


async def test_silence_ends_the_flows(caplog: pytest.LogCaptureFixture) -> None:
    shards, publisher = world()
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0)))
    await shards.settled()
    publisher.connection.tick(3.0)
    await shards.settled()
    assert publisher.closed
    assert not shards.workers()
    assert [record.levelname for record in caplog.records if "nothing heard" in record.getMessage()] == ["WARNING"]
    await shards.close()


async def test_progress_and_ack_come_back() -> None:
    shards, publisher = world()
    change = update("t", key=1)
    publisher.teach([change.schema])
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0)))
    await shards.settled()
    publisher.send(*frames.parts(1, 1, 1, body_of([change]), 5), frames.datamarker(1, 1, marker_at(1)))
    await shards.settled()
    assert publisher.take("progress")[-1].progress.number == 1
    assert publisher.take("ack")[-1].ack.marker.delivered == "1"
    await shards.close()


async def test_what_needs_no_answer_wakes_nobody() -> None:
    shards, publisher = world()
    change = update("t", key=1)
    publisher.teach([change.schema])
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0)))
    await shards.settled()
    woken: list[None] = []
    publisher.connection._output = lambda: woken.append(None)
    publisher.connection._soon = lambda: None
    data = push_pb2.PublisherMessage(frames=[frames.batch(1, 1, 1, body_of([change]))]).SerializeToString()
    publisher.connection.receive(data, 0.0)
    assert not woken
    await shards.settled()
    assert publisher.connection.take_output(0.0) is not None, "its progress"
    await shards.close()


async def test_leaving_twice_says_goodbye_once() -> None:
    shards, publisher = world()
    publisher.connection.leave()
    publisher.connection.leave()
    assert len(publisher.take("goodbye")) == 1
    await shards.close()
