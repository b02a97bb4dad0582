"""Rows in a real Redis against a model of their log: whatever happens on the way, no row goes back.

Two flows deliver the same log, as the owners of a former and of a present map of shards do, each at its own pace. Their
processes die, are replaced and wake up, and their operators move them back. Commands get lost on the way to the server
or on the way back, or arrive long after their process was replaced. The server is set back to an older copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis import Redis

from sinks.port import Sink
from sinks.redis.kind import KIND
from sinks.redis.settings import RedisSettings
from subscriber_sdk import UNAVAILABLE, Op, RetryPolicy
from subscriber_sdk.testing import Change, Kit, KitFlow, marker_at, update
from tests.support.redis_server import RedisServer
from tests.support.seed import examples
from wormhole.model.errors import TargetUnavailable

# The client looks up addresses, which the kit's loop does in place.
pytestmark = pytest.mark.allow_blocking

TABLE: Final = "t"
RETRY: Final = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.002)
KEYS: Final = range(4)
State = dict[int, dict[str, Any]]


class Source:
    """The log, and the rows after each of its changes. No value is written twice."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.log: list[list[Change]] = []
        self.states: list[State] = [{}]
        self._value = 0

    def transaction(self, number: int) -> list[Change]:
        """Transaction ``number``, the first one is 0."""
        while len(self.log) <= number:
            self.log.append([self._next() for _ in range(self._random.randint(1, 4))])
        return self.log[number]

    def _next(self) -> Change:
        self.states.append({key: dict(row) for key, row in self.states[-1].items()})
        return self._change(self.states[-1])

    def _change(self, state: State) -> Change:
        self._value += 1
        key, row = self._random.choice(KEYS), {"a": self._value, "b": -self._value}
        kind = self._random.choice(("put", "put", "part", "gone", "move", "truncate"))
        if kind == "truncate":
            state.clear()
            return update(TABLE, key=(), op=Op.TRUNCATE)
        free = [other for other in KEYS if other not in state]
        if kind == "gone" or (kind == "move" and not (key in state and free)):
            state.pop(key, None)
            return update(TABLE, key=key, before=row)
        if kind == "part":
            if key in state:
                state[key]["a"] = self._value
            return update(TABLE, key=key, after={"a": self._value, "b": UNAVAILABLE}, op=Op.UPDATE)
        if kind == "move":
            to = self._random.choice(free)
            state[to] = {**state.pop(key), "a": self._value}
            return update(TABLE, key=to, old_key=key, after={"a": self._value, "b": UNAVAILABLE}, op=Op.UPDATE)
        state[key] = row
        return update(TABLE, key=key, after=row)


class World:
    """Both flows, and what was seen of each row: ``seen`` is the number of changes after which it was so."""

    def __init__(self, seed: int, url: str) -> None:
        self.random = Random(seed)
        self.source = Source(self.random)
        self.kit = Kit()
        self.client = Redis.from_url(url)
        self.client.flushdb()
        self.settings = RedisSettings.model_validate({"url": url, "mode": "set"})
        self.seen = dict.fromkeys(KEYS, 0)
        self.sinks: list[Sink] = []
        self.late: list[Callable[[], Any]] = []
        self.copy: tuple[dict[bytes, bytes], dict[int, int]] | None = None  # the server, and what was seen then
        self.faults = False
        self.flows = [self.kit.attach(self.process(), shard=shard, retry=RETRY) for shard in ("db.0of2", "db.0of4")]

    def process(self) -> Any:
        """The subscriber of a new process, whose connection is as bad as it can be."""
        sink = KIND.open("rows", self.settings)
        self.sinks.append(sink)
        store = sink._store  # type: ignore[attr-defined]
        send, receive = store.send, store.receive
        lost: list[Any] = []

        async def late(packed: Any, names: Any) -> None:
            await receive(await send(packed, names))

        async def unsure(packed: Any, names: Any) -> Any:
            fault = self.random.random() if self.faults and names[-1] == "EVAL" else 1.0
            if fault < 0.1:
                self.late.append(lambda: late(packed, names))
            if fault < 0.15:
                raise TargetUnavailable("lost on the way to the server")
            sent = await send(packed, names)
            if fault < 0.25:
                lost.append(sent)
            return sent

        async def answered(sent: Any) -> Any:
            answer = await receive(sent)
            self.look()
            if sent in lost:
                raise TargetUnavailable("lost on the way back")
            return answer

        store.send, store.receive = unsure, answered
        return sink.subscriber

    def look(self) -> None:
        """Each row is as it was after some change that is not older than the one that was seen before."""
        states = self.source.states
        stored: Any = self.client.mget([f"{TABLE}:{key}" for key in KEYS])
        for key, data in zip(KEYS, stored, strict=True):
            row = None if data is None else {name: value for name, value in json.loads(data).items() if name != "id"}
            later = range(self.seen[key], len(states))
            found = next((number for number in later if states[number].get(key) == row), None)
            assert found is not None, f"row {key} went back behind change {self.seen[key]}: {row}"
            self.seen[key] = found

    def step(self) -> None:
        """Something happens to one of the flows."""
        flow = self.random.choice(self.flows)
        number = int(flow.end.delivered)
        match self.random.choice(("on", "on", "on", "back", "again", "dies", "replaced", "late", "copied", "set back")):
            case "on":
                for more in range(self.random.randint(1, 3)):
                    pieces = self.random.choice((1, 1, 2))
                    flow.commit(*self.source.transaction(number + more), pieces=pieces)
            case "back":
                flow.move(marker_at(self.random.randint(0, number)))
            case "again":
                flow.replay(self.random.randint(0, number))
            case "dies":
                flow.crash_and_redeliver(self.random.randint(0, number), subscriber=self.process())
            case "replaced":
                woken: KitFlow = flow.hand_over(self.process())
                flow.commit(*self.source.transaction(number))
                woken.commit(*self.source.transaction(number))
                assert woken.fenced
            case "copied" if all(int(one.end.delivered) for one in self.flows):
                keys: Any = self.client.keys()
                self.copy = {key: self.client.dump(key) or b"" for key in keys}, dict(self.seen)
            case "set back" if self.copy is not None:
                found, self.seen = self.copy[0], dict(self.copy[1])
                self.client.flushdb()
                for key, value in found.items():
                    self.client.restore(key, 0, value)
            case "late" if self.late:
                self.kit.run(self.late.pop(self.random.randrange(len(self.late)))())
                self.look()

    def finish(self) -> None:
        """Both flows reach the end of the log, and what is late arrives."""
        self.faults = False
        for flow in self.flows:
            for number in range(int(flow.end.delivered), len(self.source.log)):
                flow.commit(*self.source.log[number])
        for flow in self.flows:
            flow.commit()  # notices a server that was set back
        for late in self.late:
            self.kit.run(late())
        rows = {key: self.client.get(f"{TABLE}:{key}") for key in KEYS}
        found = {key: json.loads(data) for key, data in rows.items() if data is not None}
        assert found == {key: {"id": key, **row} for key, row in self.source.states[-1].items()}

    def close(self) -> None:
        self.client.close()
        for sink in self.sinks:
            self.kit.run(sink.close())
        self.kit.close()


def _round(seed: int, url: str) -> None:
    world = World(seed, url)
    try:
        world.faults = True
        for _ in range(25):
            world.step()
        world.finish()
    finally:
        world.close()


@examples(20)
@example(seed=2)  # the first ones that found faults
@example(seed=20)
@example(seed=45)
@example(seed=48)
@example(seed=67)
@example(seed=156)
@example(seed=305)
@example(seed=1012)
@given(seed=st.integers(0, 1 << 32))
def test_no_row_goes_back(redis_server: RedisServer, seed: int) -> None:
    _round(seed, redis_server.url(999))
