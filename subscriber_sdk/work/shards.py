"""Decides which epoch of each shard this process works on, over all streams, and starts and ends its flows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final

from subscriber_sdk.calls.epoch import Ending
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.options.subscriber_options import Options, RetryPolicy
from subscriber_sdk.stream.budget import Accounts, large_budget, state_budget
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import Abilities, FlowPort, Held, PushingPeer
from subscriber_sdk.subscriber import Subscriber
from subscriber_sdk.work.flow_worker import FlowWorker
from subscriber_sdk.work.recovery import KeptOverEpochs
from wormhole.host.log_batch import BatchedLog
from wormhole.model.errors import ProtocolError
from wormhole.wire.v1 import push_pb2

__all__ = ["Shards"]

log = logging.getLogger("subscriber_sdk")

_LEAST_CREDIT: Final = 64 << 10  # bytes; less credit would cost a round trip every few updates

_KEPT_IDLE: Final = 4096  # the most shards without a flow whose epochs this process remembers
_SHOWN: Final = 100


@dataclass(slots=True)
class _Shard:
    kept: KeptOverEpochs
    epoch: int = 0  # the highest epoch so far
    holder: PushingPeer | None = None  # the publisher that assigned this epoch
    worker: FlowWorker | None = None
    port: FlowPort | None = None  # the worker's port

    def refusal(self, peer: PushingPeer, assigned: Assigned) -> Held | None:
        """The present holding by which ``peer`` may not have the shard; ``None``: ``peer`` may have it.

        The higher epoch wins. In the same epoch the first of two publishers keeps the shard. It also keeps the shard
        against a higher epoch of a publisher that yields, because two publishers that do not know of each other would
        otherwise take the shard from each other without end.
        """
        other = self.holder is not None and peer.differs(self.holder)
        contested = other and self.holder is not None and self.holder.connected
        stale = assigned.epoch < self.epoch or (assigned.epoch == self.epoch and other)
        if not stale and not (assigned.yields and contested):
            return None
        return Held(self.epoch, "" if self.holder is None else self.holder.name, contested)


class Shards:
    """Every flow of this process. One epoch of a shard works at a time: a newer one waits until the older has ended.

    ``chance``: random numbers from 0 to 1, and ``pool``: where plain ``def`` callbacks run (tests give their own).
    """

    def __init__(
        self,
        subscriber: Subscriber,
        options: Options,
        chance: Callable[[], float] | None = None,
        pool: Executor | None = None,
    ) -> None:
        self._handlers = Handlers(subscriber, pool)
        self._options = options
        self._chance = chance or Random().random
        self._shards: dict[str, _Shard] = {}
        self.state = state_budget(options.max_state)
        """The budget for data of publishers that stays as long as a flow or a stream."""
        self.large = large_budget(options.max_body)
        """The budget for batches larger than their flow's credit."""
        self._tasks: dict[asyncio.Task[None], FlowWorker] = {}
        self._granted = 0
        self._leaving = False
        self._changed: asyncio.Future[None] | None = None
        self._said = BatchedLog(lambda line: log.info("%s", line))

    @property
    def abilities(self) -> Abilities:
        """What the application can do."""
        return Abilities(self._handlers.verifies, "on_range" in self._handlers.overridden)

    def accounts(self, owner: str, end: Callable[[ProtocolError], None] = lambda error: None) -> Accounts:
        """The accounts of a stream of ``owner`` in the budgets (:meth:`~subscriber_sdk.stream.budget.Budget.open`)."""
        return Accounts(self.state.open(owner, end), self.large.open(owner, end))

    def workers(self) -> tuple[FlowWorker, ...]:
        """The workers of all flows, including flows that are ending."""
        return tuple(self._tasks.values())

    def assign(self, port: FlowPort, assigned: Assigned) -> FlowWorker | None:
        """Take a flow; ``None`` if it was refused (by an answer through the port)."""
        options = self._options
        shard = self._shards.get(assigned.shard)
        if shard is None:
            retry = Retry(options.retry or RetryPolicy(), self._chance)
            # The publisher of a shard is logged before failures of the shard.
            shard = _Shard(KeptOverEpochs(retry, rested=self._rested, failing=self._said.flush))
        else:
            del self._shards[assigned.shard]
        self._shards[assigned.shard] = shard  # the dictionary is in the order of the last assignments
        peer = port.peer
        refused = shard.refusal(peer, assigned)
        if refused is not None:
            by = f", assigned by publisher {refused.by}" if refused.by else ""
            message = (
                f"epoch {assigned.epoch} of shard {assigned.shard} is refused: "
                f"it is held here in epoch {refused.epoch}{by}"
            )
            log.warning("publisher %s: %s", peer.name, message)
            port.fail(push_pb2.Failed.STALE_EPOCH, "", message, refused)
            return None
        if self._leaving:
            shard.holder, shard.epoch = peer, assigned.epoch
            self.give_back(port, assigned.shard)
            return None
        released = port.hold(assigned.size, f"shard {assigned.shard[:_SHOWN]}")
        shard.holder, former, shard.epoch = peer, shard.holder, assigned.epoch
        before, held_by = shard.worker, shard.port
        if before is not None:
            before.end(Ending.CUT, f"epoch {assigned.epoch} was assigned")
            if former is not None and held_by is not None and peer.differs(former):
                # Without an answer the former publisher would continue to send updates, which this process ignores.
                message = f"shard {assigned.shard} was taken by publisher {peer.name} in epoch {assigned.epoch}"
                log.error("publisher %s loses its flow: %s", former.name, message)
                held_by.fail(push_pb2.Failed.STALE_EPOCH, "", message, Held(assigned.epoch, peer.name, True))
        shard.kept.counts.assigned(assigned.epoch)
        worker = FlowWorker(self._handlers, options, port, assigned, shard.kept, credit=self._credit())
        self._granted += worker.credit
        shard.worker, shard.port = worker, port
        task = worker.start(before)
        self._tasks[task] = worker
        serves = f"publisher {peer.name[:_SHOWN]} serves shards"
        self._said.add(serves, assigned.shard, f"from {assigned.marker} in epoch {assigned.epoch}")
        task.add_done_callback(self._ended)
        worker.when_ended(released)
        self._forget_idle()
        return worker

    def give_back(self, port: FlowPort, shard: str) -> None:
        """Release a flow that was not taken: at once, or when the callbacks of an earlier epoch of its shard have
        ended."""
        known = self._shards.get(shard)
        if known is None or known.worker is None:
            port.release(None)
        else:
            known.worker.when_ended(lambda: port.release(None))

    async def settled(self) -> None:
        """Wait until no flow has anything to do."""
        while not all(worker.epoch.resting for worker in self._tasks.values()):
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    async def leave(self, timeout: float) -> bool:
        """Begin no new callback, wait for running ones, and release every flow. Returns whether that was done within
        ``timeout`` seconds.

        Callbacks that still run then are cancelled. Their updates were not acknowledged and are delivered again.
        """
        self._leaving = True
        for worker in self._tasks.values():
            worker.end(Ending.LEAVING)
        return await self._wait(timeout)

    async def close(self) -> None:
        """End everything at once."""
        self._leaving = True
        await self._wait(0)
        self._said.flush()
        self._handlers.close()

    async def _wait(self, timeout: float) -> bool:
        tasks = list(self._tasks)
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=timeout)
        for task in late:
            log.error("%r did not end within %g s: cancelled", self._tasks[task], timeout)
            task.cancel()
        if late:
            # A callback that swallows its cancellation is not waited for, because the process has to be able to end.
            await asyncio.wait(late, timeout=1.0)
        return not late

    def _credit(self) -> int:
        """Half of the remaining credit, so that a later flow always gets some."""
        left = self._options.buffer - self._granted
        return min(self._options.credit, max(_LEAST_CREDIT, left // 2))

    def _ended(self, task: asyncio.Task[None]) -> None:
        worker = self._tasks.pop(task)
        epoch = worker.epoch
        self._granted -= worker.credit
        acknowledged = "nothing acknowledged" if epoch.acked is None else f"acknowledged to {epoch.acked}"
        self._said.add("shards are no longer served", epoch.shard, f"{acknowledged}: {epoch.cause}")
        shard = self._shards.get(epoch.shard)
        if shard is not None and shard.worker is worker:
            shard.worker = shard.port = None
        self._rested()

    def _forget_idle(self) -> None:
        """Bound the memory for shards without a flow in this process. The shards that were assigned longest ago are
        forgotten first."""
        if len(self._shards) - len(self._tasks) <= _KEPT_IDLE:
            return
        idle = [name for name, shard in self._shards.items() if shard.worker is None]
        for name in idle[: len(idle) - _KEPT_IDLE // 2]:
            del self._shards[name]

    def _rested(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
