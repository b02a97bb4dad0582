"""The operators' changes of parked updates: deliver them again, or discard them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.replays import Replays
from publisher.operate.flow_reports import FlowReports
from publisher.operate.operators import Operators, flow_key
from publisher.operate.planned_change import PlannedChange
from publisher.push.flow import PublisherFlow
from wormhole.wire.v1 import admin_pb2

__all__ = ["LetterChanges"]

_LETTERS: Final = 100


class LetterChanges:
    """Implements :class:`~publisher.operate.planned_change.Changes`."""

    verbs: Final = ("retry_dead_letters", "discard_dead_letters")

    def __init__(
        self, dead_letters: DeadLetterOffice, replays: Replays, reports: FlowReports, operators: Operators
    ) -> None:
        self._dead_letters = dead_letters
        self._replays = replays
        self._reports = reports
        self._operators = operators

    async def parked(self, request: admin_pb2.DeadLettersRequest) -> admin_pb2.DeadLettersReply:
        """The parked updates that the request selects."""
        office = self._dead_letters
        key = flow_key(request.flow) if request.flow else None
        if key is not None and key not in self._reports.flows:
            raise self._operators.no_flow(key)
        letters, total = await office.letters(key, request.limit or _LETTERS)
        return admin_pb2.DeadLettersReply(letters=letters, total=total, limit=office.limit)

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """See :class:`~publisher.operate.planned_change.Changes`."""
        if request.WhichOneof("what") == "retry_dead_letters":
            asked = request.retry_dead_letters
            again = partial(self._dead_letters.retry, anyone=asked.anyone)
            return await self._letters("retry-dead-letters", flow, again, asked.key)
        key = request.discard_dead_letters.key
        return await self._letters("discard-dead-letters", flow, self._dead_letters.discard, key)

    async def _letters(
        self, what: str, flow: PublisherFlow, ask: Callable[[PublisherFlow, str, bool], Awaitable[str]], key: str
    ) -> PlannedChange:
        note = await ask(flow, key, True)

        async def made() -> None:
            await ask(flow, key, False)
            self._replays.fence(flow)

        return PlannedChange(
            what, self._reports.status(flow), made, f"{flow.parking.count} parked", key or "all", [note]
        )
