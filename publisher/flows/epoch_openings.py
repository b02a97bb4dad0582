"""Prepares a flow's new epoch before a subscriber, or a task of a mass replay, gets the flow."""

from __future__ import annotations

from collections.abc import Collection

from publisher.flows.backfills import Backfills
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.flow_states import FlowStates
from publisher.flows.records import FlowRecords
from publisher.push.flow import PublisherFlow
from wormhole.model.position import LogPosition

__all__ = ["EpochOpenings"]


class EpochOpenings:
    """The order of steps: ``settle``, then the caller raises the epoch, then ``note``, ``read`` and ``prepare``. Each
    step raises the errors of the store and of the coordination service.
    """

    def __init__(
        self, records: FlowRecords, states: FlowStates, dead_letters: DeadLetterOffice, backfills: Backfills
    ) -> None:
        self._records = records
        self._states = states
        self._dead_letters = dead_letters
        self._backfills = backfills

    async def settle(self) -> None:
        """Store acknowledged datamarkers, because the store refuses them once the epoch is raised."""
        await self._records.settle()

    async def note(self, flows: Collection[PublisherFlow]) -> None:
        """Record the epochs, which subscribers check, and the subscribers, which the log's next publisher reads."""
        await self._states.note(flows)

    async def read(self, flows: Collection[PublisherFlow]) -> None:
        """Read the stored data with which the epochs of many flows begin."""
        await self._records.counter.load(flows)
        await self._dead_letters.ask(flows)

    async def prepare(self, flow: PublisherFlow) -> None:
        """Prepare one flow, just before it is assigned."""
        await self._backfills.prepare(flow)
        await self._dead_letters.load(flow)

    async def prepare_replay(self, flow: PublisherFlow) -> LogPosition | None:
        """Prepare one flow for a task of a replay. Returns the place up to which deliveries are counted already."""
        counted_to = await self._records.counter.open_replay(flow)
        await self._dead_letters.load(flow)  # after the epoch was raised: a former epoch can no longer park anything
        return counted_to
