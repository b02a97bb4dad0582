"""Who serves a subscriber, and what to look at while nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from subscriber_sdk.options.subscriber_options import SHARED, Options
from subscriber_sdk.server.publishers import Publishers
from subscriber_sdk.stream.flow_port import PushingPeer
from subscriber_sdk.testing.clock import FakeTimeLoop
from wormhole.model.problem import Problem

ADDRESS = "10.0.0.7:4711"


class Scene:
    """A subscriber that listens, by a clock of its own."""

    def __init__(self, loop: FakeTimeLoop, caplog: pytest.LogCaptureFixture) -> None:
        self.loop = loop
        self.caplog = caplog
        self.serves = False

    def listens(self, coordinator: str = "zk1:2181/wormhole") -> Publishers:
        options = Options("cache", coordinator=coordinator, id="web-1", listen="127.0.0.1:4711")
        publishers = Publishers(options, lambda: self.serves)
        self.loop.call_soon(publishers.listens, ADDRESS)
        return publishers

    def after(self, seconds: float) -> list[tuple[int, str]]:
        """Level and text of what is logged meanwhile."""
        self.caplog.clear()
        self.loop.run_until_complete(asyncio.sleep(seconds))
        return [(record.levelno, record.getMessage()) for record in self.caplog.records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    caplog.set_level(logging.INFO)
    loop = FakeTimeLoop()
    yield Scene(loop, caplog)
    loop.close()


def test_where_it_listens_is_logged_at_once(scene: Scene) -> None:
    scene.listens()
    line = f"subscriber cache/web-1 listens at {ADDRESS}, coordinator zk1:2181/wormhole"
    assert scene.after(0.1) == [(logging.INFO, line)]


def test_without_a_publisher_it_names_what_to_look_at_and_repeats_it_rarely(scene: Scene) -> None:
    scene.listens()
    assert len(scene.after(9.9)) == 1
    ((level, text),) = scene.after(0.2)
    assert level == logging.WARNING
    assert text.startswith(f"no publisher is connected to subscriber cache/web-1 at {ADDRESS} for 10 s. Next: ")
    for command in ("publishers", "subscribers", "why-lag cache/SHARD"):
        assert f"`wormholectl {command} -c zk1:2181/wormhole`" in text
    assert scene.after(299) == []
    ((_, text),) = scene.after(2)
    assert "for 310 s" in text


@pytest.mark.parametrize(
    ("coordinator", "shown"),
    [
        ("", f"the publisher's configuration has to list {ADDRESS} in [applications.cache.subscribers]"),
        ("shop.toml", "`wormholectl publishers -c shop.toml`"),
        (SHARED, "`wormholectl publishers`"),
    ],
)
def test_the_next_step_fits_the_coordinator(scene: Scene, coordinator: str, shown: str) -> None:
    scene.listens(coordinator)
    assert shown in scene.after(11)[-1][1]


def test_a_publisher_that_connects_is_named_and_ends_the_wait(scene: Scene) -> None:
    publishers, peer = scene.listens(), PushingPeer("shop/main/db1@h:1")
    scene.serves = True
    scene.after(5)
    scene.loop.call_soon(publishers.connected, peer)
    assert scene.after(1000) == [(logging.INFO, "publisher shop/main/db1@h:1 connected")]


def test_after_the_last_publisher_has_gone_the_wait_begins_anew(scene: Scene) -> None:
    publishers, first, second = scene.listens(), PushingPeer("one"), PushingPeer("two")
    scene.serves = True
    for peer in (first, second):
        scene.loop.call_soon(publishers.connected, peer)
    scene.after(100)
    scene.loop.call_soon(publishers.disconnected, first)
    assert scene.after(100) == []
    scene.loop.call_soon(publishers.disconnected, second)
    assert scene.after(9) == []
    assert [level for level, _ in scene.after(2)] == [logging.WARNING]


def test_a_stream_that_was_refused_changes_nothing(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(100)
    scene.loop.call_soon(publishers.disconnected, PushingPeer("a stranger"))
    assert scene.after(200) == []


def test_a_publisher_that_gives_no_shard_is_named_once(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(1)
    scene.loop.call_soon(publishers.connected, PushingPeer("one"))
    _, (level, text) = scene.after(1000)
    assert (level, text.partition(":")[0]) == (
        logging.INFO,
        "publisher one has given this subscriber no shard within 10 s",
    )
    assert "`wormholectl flows -c zk1:2181/wormhole`" in text


def test_nothing_is_logged_after_the_end(scene: Scene) -> None:
    publishers = scene.listens()
    scene.after(1)
    publishers.close()
    publishers.disconnected(PushingPeer("one"))
    assert scene.after(1000) == []


def test_a_refusal_is_logged_once_however_often_the_publisher_dials(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    publishers = scene.listens()
    for number in (1, 2, 1, 2):
        publishers.refused("db1@h:1", Problem(f"reason {number}", "do this"))
    assert [record.getMessage() for record in caplog.records] == [
        "refused db1@h:1: reason 1. Next: do this",
        "refused db1@h:1: reason 2. Next: do this",
    ]
    for number in range(1000):
        publishers.refused("db1@h:1", Problem(f"reason {number}"))
    assert len(publishers._refused) <= 64
