"""The state of each flow as operators and other processes see it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from caravan.fleet import Fleet
from publisher.flows.known_flows import KnownFlows
from publisher.flows.ownership import Ownership
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from wormhole.coordination.port import FlowRecord
from wormhole.host.waiting import in_turns
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.marker_store import FlowKey

__all__ = ["FlowStates"]


class FlowStates:
    """Shows the states of one publisher's flows. ``identity``: the name of this publisher in flow records."""

    def __init__(
        self,
        identity: str,
        known: KnownFlows,
        ownership: Ownership,
        fleet: Fleet,
        flows: Mapping[FlowKey, PublisherFlow],
    ) -> None:
        self._identity = identity
        self._known = known
        self._ownership = ownership
        self._fleet = fleet
        self._flows = flows
        self._noting = asyncio.Lock()  # keeps the order of the written records

    def lead_flows(self) -> frozenset[str]:
        """Names of the flows that travel with the lead caravan."""
        lead = self._fleet.lead
        return frozenset() if lead is None else frozenset(flow.name for flow in lead.flows)

    def state(self, flow: PublisherFlow, lead_flows: frozenset[str]) -> PublisherFlowState:
        """The state that operators see. An open flow is shown as held while this publisher may send nothing."""
        if flow.delivery.caravan_flow is not None and not self._ownership.may_send():
            return PublisherFlowState.HELD
        return flow.state(lead_flows)

    def why_silent(self, flow: PublisherFlow) -> Problem:
        """Why this publisher may not send anything of the flow; empty if it may."""
        sends = flow.delivery.caravan_flow is None or self._ownership.may_send()
        return NO_PROBLEM if self._ownership.ours() and sends else self._ownership.why_silent()

    async def forget(self, key: FlowKey) -> None:
        """Forget a flow whose record was deleted. Raises the errors of :meth:`note`."""
        await self._known.forget(key)

    async def look(self) -> None:
        """Record the present states of all flows. Raises the errors of :meth:`note`."""
        await self.note(self._flows.values())

    async def note(self, flows: Collection[PublisherFlow]) -> None:
        """Record the present states and epochs of the flows. Subscribers refuse an epoch that is not recorded.

        Raises :class:`~wormhole.model.errors.WormholeError`.
        """
        async with self._noting:
            lead = self.lead_flows()
            await self._known.note(
                {
                    flow.key: FlowRecord(
                        self._identity,
                        flow.recorded,
                        flow.holding.epoch,
                        self.state(flow, lead).value,
                        flow.holding.recorded_process,
                    )
                    async for flow in in_turns(flows)
                }
            )
