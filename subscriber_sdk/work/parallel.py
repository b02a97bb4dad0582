"""Runs several callbacks of one flow at a time. The callbacks of one key stay in order (``keyorder`` has the rules).

The callback for a changed schema waits for all earlier callbacks, and all later ones wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from subscriber_sdk.subscriber import SchemaChange
from subscriber_sdk.work.acks import BatchItem, FlowLog
from subscriber_sdk.work.keyorder import KeyOrder
from wormhole.wire.update import Update

__all__ = ["ParallelFailure", "run_parallel"]


class ParallelFailure(Exception):  # noqa: N818 - a wrapper that names which of several updates failed
    """``error`` and the first update, in log order, whose callback raised it; ``None``: the callback for a changed
    schema raised it."""

    def __init__(self, error: Exception, update: Update | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.update = update


@dataclass(slots=True, eq=False)
class _Batch:
    item: BatchItem
    left: int
    returned: int = 0  # callbacks of updates


async def run_parallel(
    item: BatchItem,
    log: FlowLog,
    *,
    parse: Callable[[BatchItem], list[Update | SchemaChange] | None],
    call: Callable[[Update | SchemaChange], Coroutine[Any, Any, None]],
    finished: Callable[[BatchItem, int], None],
    unfinished: Callable[[BatchItem, int], None],
    wake: asyncio.Event,
    going: Callable[[], bool],
    concurrency: int,
    ahead: bool = True,
) -> None:
    """Process ``item`` and the batches that follow it in ``log``, up to the next datamarker or until nothing waits.
    Without ``ahead`` it processes only ``item``.

    A datamarker waits for everything before it, so no batch after a datamarker is begun. ``wake`` is set when an item
    arrived. ``unfinished``: called for a batch that is not finished, with the number of callbacks that returned. When
    ``going`` is false, no new callback begins. Returns when no callback runs any more. Raises :class:`ParallelFailure`.
    """
    # This is one long body, because it runs for every update, and all its steps change the same few collections.
    order = KeyOrder()
    jobs: dict[int, tuple[Update | SchemaChange, _Batch]] = {}
    coming: deque[tuple[Update | SchemaChange, _Batch]] = deque()
    ended: deque[tuple[int, asyncio.Task[None]]] = deque()
    running: set[asyncio.Task[None]] = set()
    failures: dict[int, Exception] = {}
    window = max(64, 8 * concurrency)  # how many updates are searched for free keys
    broken = False
    following: BatchItem | None = item
    count = 0

    def note(number: int, task: asyncio.Task[None]) -> None:
        ended.append((number, task))
        wake.set()

    try:
        while True:
            while not failures and not broken and going() and len(order) < window:
                if not coming:
                    if following is None:
                        if not ahead or not isinstance(log.peek(), BatchItem):
                            break
                        taken = log.take()
                        assert isinstance(taken, BatchItem)
                        following = taken
                    steps = parse(following)
                    if steps is None:
                        broken = True
                        break
                    batch = _Batch(following, len(steps))
                    following = None
                    coming.extend((step, batch) for step in steps)
                    if not steps:
                        finished(batch.item, 0)
                        continue
                step, batch = coming.popleft()
                try:
                    keys = None if isinstance(step, SchemaChange) else step.ordering_keys()
                except Exception as error:  # noqa: BLE001 - a row that cannot be decoded fails like its callback would
                    failures[count] = error
                    jobs[count] = (step, batch)
                    break
                jobs[count] = (step, batch)
                order.add(count, keys)
                count += 1
            while order.ready and len(running) < concurrency and not failures and not broken and going():
                number = order.ready.popleft()
                task = asyncio.create_task(call(jobs[number][0]))
                running.add(task)
                task.add_done_callback(lambda task, number=number: note(number, task))  # type: ignore[misc]
            if not running:
                break
            wake.clear()
            if not ended:
                await wake.wait()
            while ended:
                number, task = ended.popleft()
                running.discard(task)
                order.done(number)
                failed = _error_of(task)
                if failed is not None:
                    failures[number] = failed
                    continue
                step, batch = jobs.pop(number)
                batch.left -= 1
                batch.returned += not isinstance(step, SchemaChange)
                if not batch.left:
                    finished(batch.item, batch.returned)
    finally:
        for started in dict.fromkeys(batch for _, batch in (*jobs.values(), *coming)):
            unfinished(started.item, started.returned)
        # A callback still runs here only if this task itself was cancelled.
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
    if failures:
        first = min(failures)
        step = jobs[first][0]
        raise ParallelFailure(failures[first], None if isinstance(step, SchemaChange) else step)


def _error_of(task: asyncio.Task[None]) -> Exception | None:
    if task.cancelled():
        return RuntimeError("the callback raised CancelledError of its own")
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return error
    raise error
