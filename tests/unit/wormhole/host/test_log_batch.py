"""How many lines are said about how much."""

import asyncio
import re
from collections.abc import Coroutine

from subscriber_sdk.testing.clock import FakeTimeLoop
from wormhole.host.log_batch import BatchedLog


def _run(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        runner.run(main)


def test_what_happens_to_one_is_said_whole_and_to_a_thousand_in_one_line() -> None:
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        gathered.add("given to one", "cache/a", "in epoch 1")
        await asyncio.sleep(0.2)
        assert said == ["given to one: cache/a in epoch 1"]
        for number in range(1000):
            gathered.add("given to one", f"cache/{number}", "in epoch 1")
        gathered.add("given to two", "cache/b")
        await asyncio.sleep(3)
        assert said[1:] == [
            (
                "given to one (1000, the first 1.9 s ago): cache/0 in epoch 1, cache/1, cache/2, cache/3, cache/4, "
                "cache/5, cache/6, cache/7 and 992 more"
            ),
            "given to two (1.9 s ago): cache/b",
        ]

    _run(main())


def test_what_never_ends_is_said_ever_more_seldom_and_after_a_pause_at_once_again() -> None:
    said: list[tuple[float, str]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        gathered = BatchedLog(lambda line: said.append((loop.time(), line)))
        for number in range(600):  # one minute
            gathered.add("moved", f"f{number}")
            await asyncio.sleep(0.1)
        assert 3 <= len(said) <= 7
        counts = (re.search(r"\((\d+),", line) for _, line in said)
        assert sum(1 if count is None else int(count[1]) for count in counts) > 250
        await asyncio.sleep(200)
        before = len(said)
        began = loop.time()
        gathered.add("moved", "again")
        await asyncio.sleep(1)
        assert [line for _, line in said[before:]] == ["moved: again"]
        assert said[-1][0] - began < 0.2

    _run(main())


def test_nothing_is_forgotten_at_the_end_and_nothing_said_twice() -> None:
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        gathered.flush()
        gathered.add("moved", "a")
        gathered.flush()
        await asyncio.sleep(100)
        assert said == ["moved: a"]

    _run(main())


def test_kinds_that_wait_are_bounded() -> None:
    """A kind may contain a name that a peer chose."""
    said: list[str] = []

    async def main() -> None:
        gathered = BatchedLog(said.append)
        for number in range(1000):
            gathered.add(f"publisher {number} serves", "s")
        assert len(said) == 1000 // 64 * 64
        gathered.flush()
        assert len(said) == 1000

    _run(main())
