"""A topic of Kafka holds each update once, those of a row in order, whenever the broker is killed."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sinks.kafka.kind import KIND
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.shard import ShardProducer
from subscriber_sdk import HandlerFailed, RetryPolicy
from subscriber_sdk.testing import Kit, update
from tests.support.kafka_server import KafkaController, KafkaServer
from wormhole.model.errors import TargetUnavailable

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

ROWS = 5
PARTITIONS = 2
KILLS = int(os.environ.get("WORMHOLE_ROUNDS", "5"))
WITHIN_S = 0.05  # after a commit began, which takes about 0.01


class Killer:
    """Kills the broker some time after a commit began, and starts it again."""

    def __init__(self, server: KafkaServer, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._thread: threading.Thread | None = None
        self.kills = 0

    def maybe(self) -> None:
        if self.kills < KILLS and not self.waits and self._chance.random() < 0.1:
            self.kills += 1
            self._thread = threading.Timer(self._chance.uniform(0, WITHIN_S), self._kill)
            self._thread.start()

    @property
    def waits(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _kill(self) -> None:
        self._server.kill()
        self._server.start()


def succeeds(step: Callable[[], object]) -> bool:
    try:
        step()
    except HandlerFailed as failed:
        if isinstance(failed.__cause__, TargetUnavailable):
            return False
        raise
    return True


@pytest.fixture
def server() -> Iterator[KafkaServer]:
    with KafkaController() as controller, KafkaServer(controller=controller) as server:
        yield server


def test_nothing_is_missing_or_twice(
    wormhole_kit: Kit, server: KafkaServer, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    server.create("markers", cleanup_policy="compact")
    server.create("orders", PARTITIONS)
    settings = KafkaSettings(
        url=f"kafka://{server.bootstrap}", topic="orders", marker_topic="markers", timeout=5, transaction_timeout=10
    )
    sink, killer = KIND.open("lines", settings), Killer(server, 7)
    retry = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.02)
    flows = [wormhole_kit.attach(sink.subscriber, shard=shard, retry=retry) for shard in ("one", "two")]
    until_done = ShardProducer._until_done

    def watched(producer: ShardProducer, call: Any) -> None:
        if call.__name__ == "commit_transaction":
            killer.maybe()
        until_done(producer, call)

    monkeypatch.setattr(ShardProducer, "_until_done", watched)
    number = waits = 0
    while killer.kills < KILLS or killer.waits:
        number += 1
        for shard, flow in enumerate(flows):
            changes = [update("orders", key=(shard, key), after={"number": number}) for key in range(ROWS)]
            step: Callable[[], object] = partial(flow.commit, *changes)
            while not succeeds(step):
                waits, step = waits + 1, flow.assign
    say(f"  {number} transactions of each shard, {killer.kills} kills, {waits} assignments")
    found: dict[tuple[int, int], list[int]] = {}
    for record in server.records("orders"):
        document = json.loads(record.value or b"")
        found.setdefault(tuple(document["key"]), []).append(document["after"]["number"])
    assert found == {(shard, key): list(range(1, number + 1)) for shard in (0, 1) for key in range(ROWS)}
