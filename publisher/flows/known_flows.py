"""Which flows were served before, and at which subscribers, known apart from the marker store: a store that lost a
record must not make a flow look new.

A new flow begins where its application's ``start`` says. A flow that was served before and has no record begins nowhere
by itself: what it has received is not known. It is held until an operator says where it goes on.
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
"""So many epochs may have been raised since the last note, which is taken once a second."""


@dataclass(frozen=True, slots=True)
class FormerHolder:
    """The subscriber at which an earlier publisher had a flow. ``seen_at``: when that was read, by this publisher that
    owned the log then (seconds of the monotonic clock).
    """

    subscriber: str
    seen_at: float


def missing_datamarker(flow: str, witness: str, begin: Datamarker) -> Problem:
    """Why ``flow`` is held, for the operator.

    ``witness``: who knows that it was served; ``begin``: where its record says to begin.
    """
    return Problem(
        f"its datamarker is missing: {witness}, and the marker store has none that was acknowledged",
        f"`wormholectl markers set {flow} PLACE` where it stopped; or `wormholectl flows accept-loss {flow}`, which "
        f"begins at {begin}",
        code="marker-missing",
    )


class KnownFlows:
    """The witness of one log: coordination's flow records, and ``path``, a file of the publisher's own beside its
    marker store. ``includes``: whether a shard is of the log; no other record is read.

    Without ``path`` nothing is known and only coordination is written to: for a store that is not meant to last.
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
        """An epoch that no owner of the flow has had, if it was served in a later one than its record's, ``stored``;
        else ``None``.

        Then an older copy of the marker store was restored. Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """
        return await self.epoch_after(flow) if await self._seen(flow) > stored else None

    async def former_holder(self, flow: FlowKey) -> FormerHolder | None:
        """Where an earlier publisher had the flow when it reported last; ``None``: nowhere, or nothing is known of it.

        Raises :class:`~wormhole.model.errors.CoordinationLost`.
        """
        if self._path is None:
            return None
        await self._recorded(flow[0])
        return self._holders[flow[0]].get(flow)

    async def _recorded(self, application: str) -> Mapping[FlowKey, FlowRecord]:
        """What coordination has of the application's flows, asked once: what is served from now on is served by this
        publisher.
        """
        asked = self._asked.get(application)
        if asked is None:
            asked = self._asked[application] = await self._coordinator.flows([application], self._includes)
        if application not in self._holders:
            now = self._clock.monotonic()
            named = {flow: record.subscriber for flow, record in asked.items() if record.subscriber}
            self._holders[application] = {flow: FormerHolder(subscriber, now) for flow, subscriber in named.items()}
        return asked

    async def _seen(self, flow: FlowKey) -> int:
        """The highest epoch that a witness knows; 0 for a flow that none of them knows."""
        if self._path is None:
            return 0
        noted = self._noted
        if noted is None:
            noted = await asyncio.to_thread(self._load)
        recorded = (await self._recorded(flow[0])).get(flow)
        return max(noted.get(flow_name(*flow), 0), 0 if recorded is None else recorded.epoch)

    async def note(self, records: Mapping[FlowKey, FlowRecord]) -> None:
        """The flows as they are now. Raises what coordination raises, after the file was written."""
        epochs = {flow_name(*flow): record.epoch for flow, record in records.items() if record.epoch}
        await asyncio.to_thread(self._add, epochs)
        await self._coordinator.write_flows(records)

    async def follow(self, applications: Collection[str]) -> None:
        """Note what the owner of the log reports of the flows of ``applications``, while this process stands by:
        coordination may lose it. Raises what coordination raises.
        """
        records = await self._coordinator.flows(applications, self._includes)
        await asyncio.to_thread(self._add, {flow_name(*flow): record.epoch for flow, record in records.items()})

    async def forget(self, flow: FlowKey) -> None:
        """The flow was forgotten on purpose: it is new when it comes again."""
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
