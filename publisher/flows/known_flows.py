"""A second record, apart from the marker store, of which flows were served and at which subscribers. It shows that a
flow without a marker is not new if the marker store lost data.

A new flow begins at its application's ``start``. For a flow that was served before and has no record, the delivered
updates are unknown. Such a flow is held until an operator decides where it continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wormhole.coordination.port import Coordinator, FlowRecord
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.state_file import read_state, write_state
from wormhole.model.position import Datamarker, flow_name
from wormhole.model.problem import Problem
from wormhole.ports.marker_store import FlowKey

__all__ = ["FormerHolder", "KnownFlows", "missing_datamarker"]

_log = logging.getLogger(__name__)

_UNSEEN: Final = 100
"""An upper bound for the epochs that were raised since the last note. A note is written once a second."""


@dataclass(frozen=True, slots=True)
class FormerHolder:
    """The subscriber, and its process, to which an earlier publisher assigned a flow. ``seen_at``: when this publisher
    read that as the owner of the log (seconds of the monotonic clock).
    """

    subscriber: str
    seen_at: float
    process: str = ""


def missing_datamarker(flow: str, witness: str, begin: Datamarker) -> Problem:
    """Why ``flow`` is held, for the operator.

    ``witness``: what shows that the flow was served; ``begin``: where its record begins.
    """
    return Problem(
        f"its datamarker is missing: {witness}, and the marker store has none that was acknowledged",
        f"`wormholectl markers set {flow} PLACE` where it stopped; or `wormholectl flows accept-loss {flow}`, which "
        f"begins at {begin}",
        code="marker-missing",
    )


class KnownFlows:
    """The witnesses of one log: coordination's flow records, and ``path``, the publisher's own file beside its marker
    store. ``includes``: whether a shard belongs to the log; records of other shards are ignored.

    Without ``path``, for stores that are not durable, no flow is known, and notes go only to coordination.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        path: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        includes: Callable[[str], bool] = lambda shard: True,
    ) -> None:
        self._coordinator = coordinator
        self._path = path
        self._clock = clock
        self._includes = includes
        self._noted: dict[str, int] | None = None
        self._asked: dict[str, Mapping[FlowKey, FlowRecord]] = {}
        self._holders: dict[str, dict[FlowKey, FormerHolder]] = {}

    async def epoch_after(self, flow: FlowKey) -> int | None:
        """An epoch that no owner of the flow has had; ``None`` for a flow that was never served.

        Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """
        epoch = await self._seen(flow)
        return epoch + _UNSEEN if epoch else None

    async def epoch_beyond(self, flow: FlowKey, stored: int) -> int | None:
        """An epoch that no owner of the flow has had, if a witness knows a later epoch than ``stored``, the epoch of
        its record. This means that an older copy of the marker store was restored. Otherwise ``None``.

        Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """
        return await self.epoch_after(flow) if await self._seen(flow) > stored else None

    async def former_holder(self, flow: FlowKey) -> FormerHolder | None:
        """The subscriber that had the flow in an earlier publisher's last report; ``None``: none had it, or the report
        is missing.

        Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """
        if self._path is None:
            return None
        await self._recorded(flow[0])
        return self._holders[flow[0]].get(flow)

    async def _recorded(self, application: str) -> Mapping[FlowKey, FlowRecord]:
        """The flow records of the application in coordination. They are read once, because from then on this publisher
        serves the flows.
        """
        asked = self._asked.get(application)
        if asked is None:
            asked = self._asked[application] = await self._coordinator.flows([application], self._includes)
        if application not in self._holders:
            now = self._clock.monotonic()
            self._holders[application] = {
                flow: FormerHolder(record.subscriber, now, record.process)
                for flow, record in asked.items()
                if record.subscriber
            }
        return asked

    async def _seen(self, flow: FlowKey) -> int:
        """The highest epoch of the flow that a witness knows; 0 if no witness knows the flow."""
        if self._path is None:
            return 0
        noted = self._noted
        if noted is None:
            noted = await asyncio.to_thread(self._load)
        recorded = (await self._recorded(flow[0])).get(flow)
        return max(noted.get(flow_name(*flow), 0), 0 if recorded is None else recorded.epoch)

    async def note(self, records: Mapping[FlowKey, FlowRecord]) -> None:
        """Record the present state of the flows. Raises coordination's errors, after the file was written."""
        epochs = {flow_name(*flow): record.epoch for flow, record in records.items() if record.epoch}
        await asyncio.to_thread(self._add, epochs)
        await self._coordinator.write_flows(records)

    async def follow(self, applications: Collection[str]) -> None:
        """Copy the owner's reports about the flows of ``applications`` to the file while this process stands by,
        because coordination may lose them. Raises coordination's errors.
        """
        records = await self._coordinator.flows(applications, self._includes)
        await asyncio.to_thread(self._add, {flow_name(*flow): record.epoch for flow, record in records.items()})

    async def forget(self, flow: FlowKey) -> None:
        """Forget a flow that an operator deleted. If the flow is served again, it is new."""
        await asyncio.to_thread(self._add, {flow_name(*flow): 0})
        await self._coordinator.write_flows({flow: FlowRecord("", "", 0, "forgotten")})
        self._asked.pop(flow[0], None)

    def _load(self) -> dict[str, int]:
        if self._noted is None:
            found = {} if self._path is None else read_state(self._path).get("epochs", {})
            self._noted = {
                str(name): epoch
                for name, epoch in (found.items() if isinstance(found, dict) else ())
                if isinstance(epoch, int)
            }
        return self._noted

    def _add(self, epochs: Mapping[str, int]) -> None:
        noted = self._load()
        changed = {**noted, **epochs}
        if self._path is None or changed == noted:
            return
        try:
            write_state(self._path, {"epochs": changed}, sync=False)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error.strerror)
        else:
            self._noted = changed
