"""Several callbacks of one flow at a time, each key in order (``keyorder`` has the rules)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from subscriber_sdk.acks import BatchItem, FlowLog
from subscriber_sdk.keyorder import KeyOrder
from wormhole.wire.update import Update

__all__ = ["ParallelFailure", "run_parallel"]


class ParallelFailure(Exception):  # noqa: N818 - a wrapper that says which of several updates failed
    """The first update, in log order, whose callback raised ``error``."""

    def __init__(self, error: Exception, update: Update | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.update = update


@dataclass(slots=True, eq=False)
class _Batch:
    item: BatchItem
    updates: int
    left: int


async def run_parallel(
    item: BatchItem,
    log: FlowLog,
    *,
    parse: Callable[[BatchItem], list[Update] | None],
    call: Callable[[Update], Coroutine[Any, Any, None]],
    finished: Callable[[BatchItem, int], None],
    unfinished: Callable[[BatchItem, int], None],
    wake: asyncio.Event,
    going: Callable[[], bool],
    concurrency: int,
) -> None:
    """Work on ``item`` and the batches that follow it in ``log``, up to the next datamarker or until nothing waits.

    A datamarker waits for everything before it, so batches behind one are not begun. ``wake`` is set when something
    arrived. ``unfinished``: called for a batch that is not finished, with the number of callbacks that returned. When
    ``going`` is false nothing new begins. Returns when no callback runs any more; raises :class:`ParallelFailure`.
    """
    order = KeyOrder()
    jobs: dict[int, tuple[Update, _Batch]] = {}
    coming: deque[tuple[Update, _Batch]] = deque()
    ended: deque[tuple[int, asyncio.Task[None]]] = deque()
    running: set[asyncio.Task[None]] = set()
    failures: dict[int, Exception] = {}
    window = max(64, 8 * concurrency)  # looked ahead for keys that are free
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
                        if not isinstance(log.peek(), BatchItem):
                            break
                        taken = log.take()
                        assert isinstance(taken, BatchItem)
                        following = taken
                    updates = parse(following)
                    if updates is None:
                        broken = True
                        break
                    batch = _Batch(following, len(updates), len(updates))
                    following = None
                    coming.extend((update, batch) for update in updates)
                    if not updates:
                        finished(batch.item, 0)
                        continue
                update, batch = coming.popleft()
                try:
                    keys = update.ordering_keys()
                except Exception as error:  # noqa: BLE001 - a row that cannot be decoded fails like its callback would
                    failures[count] = error
                    jobs[count] = (update, batch)
                    break
                jobs[count] = (update, batch)
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
                _, batch = jobs.pop(number)
                batch.left -= 1
                if not batch.left:
                    finished(batch.item, batch.updates)
    finally:
        for started in dict.fromkeys(batch for _, batch in (*jobs.values(), *coming)):
            unfinished(started.item, started.updates - started.left)
        # Only when this task itself is cancelled does anything run here.
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
    if failures:
        first = min(failures)
        raise ParallelFailure(failures[first], jobs[first][0])


def _error_of(task: asyncio.Task[None]) -> Exception | None:
    if task.cancelled():
        return RuntimeError("the callback raised CancelledError of its own")
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return error
    raise error
