"""What a new epoch of a flow begins with, before a subscriber or a task of a replay gets the flow."""

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
    """The steps in their order: settle, then the epoch is raised, then note, read and prepare. Each raises what the
    store and the coordination service raise.
    """

    def __init__(
        self, records: FlowRecords, states: FlowStates, dead_letters: DeadLetterOffice, backfills: Backfills
    ) -> None:
        self._records = records
        self._states = states
        self._dead_letters = dead_letters
        self._backfills = backfills

    async def settle(self) -> None:
        """Store what was acknowledged: in the new epoch the store would refuse it."""
        await self._records.settle()

    async def note(self, flows: Collection[PublisherFlow]) -> None:
        """Make the epochs known where subscribers look, and the subscribers where the next publisher of the log
        does."""
        await self._states.note(flows)

    async def read(self, flows: Collection[PublisherFlow]) -> None:
        """Read what the epochs of many flows begin with."""
        await self._records.counter.load(flows)
        await self._dead_letters.ask(flows)

    async def prepare(self, flow: PublisherFlow) -> None:
        """Do the rest for one flow, just before it is given away."""
        await self._backfills.prepare(flow)
        await self._dead_letters.load(flow)

    async def prepare_replay(self, flow: PublisherFlow) -> LogPosition | None:
        """The same for a task of a replay. Returns up to where deliveries are counted already."""
        counted_to = await self._records.counter.open_replay(flow)
        await self._dead_letters.load(flow)  # after the epoch was raised: a former one parks nothing any more
        return counted_to
