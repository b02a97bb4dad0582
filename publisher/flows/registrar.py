"""Determines where new flows of an application begin, and stores it before anything is sent.

An application's start is stored once per log, when the application is first served (design section 6). A shard that
appears later, perhaps while no publisher runs, begins at the stored start and not at the ``latest`` of the later time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from publisher.flows.backfill_rules import first_backfill
from publisher.flows.known_flows import FormerHolder, KnownFlows, missing_datamarker
from publisher.flows.marker_target import by_start, located
from wormhole.config import EXISTING
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.ports.log_source import LogSource
from wormhole.ports.marker_store import FlowControl, FlowKey, MarkerStore, StoredFlow, start_key

__all__ = ["Beginning", "Registrar", "begin_of_unknown"]


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """A registered flow. Updates that end at or before ``sent_until`` may have been delivered already. ``holder``: the
    subscriber to which an earlier publisher assigned the flow.
    """

    shard: str
    record: StoredFlow
    sent_until: LogPosition
    holder: FormerHolder | None = None


def begin_of_unknown(
    flows: Mapping[FlowKey, StoredFlow], shards: Collection[str], start: StoredFlow | None
) -> Datamarker:
    """The place where an unregistered shard begins. ``flows``: the application's stored flows; ``shards``: the log's
    shards; ``start``: the application's stored start.

    The place is the earliest datamarker of the application's other shards. Markers are stored only while every shard of
    the log is registered, so each marker is at or before the first update of an unregistered shard. A record of a shard
    that the log no longer contains (a dropped table) is used only if no other record exists, because its datamarker
    does not move and the log after it may be gone. Without any record the place is the application's ``start``.
    """
    known = [record for (_, shard), record in flows.items() if shard in shards] or list(flows.values())
    if not known and start is not None:
        known = [start]
    return min((record.marker for record in known), key=lambda marker: marker.order)


class Registrar:
    """Registers the flows of one log. ``starts``: by application, the starts of applications without a flow."""

    def __init__(
        self, store: MarkerStore, source: LogSource, log: str, known: KnownFlows, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.starts: dict[str, Datamarker] = {}
        self._store = store
        self._source = source
        self._log = log
        self._known = known
        self._clock = clock

    async def register(
        self, application: str, start: str, wanted: Collection[str], shards: Collection[str], filter_hash: str
    ) -> list[Beginning]:
        """Register the flows of the ``wanted`` shards among the log's ``shards``. ``start``: the configured start;
        ``filter_hash``: the hash of the application's filter.

        A flow of an application that started with ``existing`` is registered with a backfill of its tables. A shard
        that appears later gets one too, because its table may have older rows that the log does not contain.

        After a crash or a failure of the store, the registered flows stay registered and the next call continues.
        Raises the errors of the store and of the source.
        """
        flows, first = await self._load(application)
        if first is None and not flows:
            place = await located(self._source, by_start(self._source, start, self._clock.wall()))
            first = await asyncio.to_thread(self._store.register, start_key(application, self._log), place, start)
            _log.warning(
                "application %s begins at %s, as start = %r requires: no datamarker of it is stored here. "
                "Next: nothing for a new application; one that was served before goes on with `wormholectl markers "
                "set %s/SHARD PLACE`",
                application,
                place,
                start,
                application,
            )
        if not flows and first is not None:
            self.starts[application] = first.marker
        begin = begin_of_unknown(flows, shards, first)
        end = await asyncio.to_thread(self._source.latest)
        found = []
        unknown: dict[FlowKey, StoredFlow] = {}
        backfill = first is not None and first.start == EXISTING
        for flow in [(application, shard) for shard in sorted(wanted)]:
            record = flows.get(flow)
            if record is not None:
                record = await self._in_an_unused_epoch(flow, record)
                sent_until = max(end.order, record.marker.order)
                found.append(Beginning(flow[1], record, sent_until, await self._known.former_holder(flow)))
            else:
                unknown[flow] = await self._first_record(flow, begin, start, filter_hash if backfill else None)
        stored = await asyncio.to_thread(self._store.register_all, unknown) if unknown else {}
        for flow, record in stored.items():
            if record.control.missing:
                _log.error("%s is held: %s", flow_name(*flow), record.control.missing)
            found.append(Beginning(flow[1], record, record.marker.order, await self._known.former_holder(flow)))
        return found

    async def _first_record(self, flow: FlowKey, begin: Datamarker, start: str, backfilled: str | None) -> StoredFlow:
        """Store the first record of a flow that is new, or whose record is lost.

        ``backfilled``: hash of the filter under which the flow gets existing rows; ``None``: it gets no existing rows.
        """
        epoch = await self._known.epoch_after(flow)
        control = FlowControl()
        if backfilled is not None:
            control = FlowControl(backfill=first_backfill(epoch or 0, backfilled, self._clock.wall()))
        if epoch is not None:
            name = flow_name(*flow)
            control = replace(control, missing=missing_datamarker(name, f"{name} was served before", begin))
        return StoredFlow(begin, epoch or 0, start, control=control)

    async def _in_an_unused_epoch(self, flow: FlowKey, record: StoredFlow) -> StoredFlow:
        """The flow's record. If an older copy of the store was restored, the record's epoch is raised above all epochs
        that witnesses know.

        Subscribers cannot replace the witnesses: a used epoch is refused only by a connected subscriber that had the
        flow in it.
        """
        beyond = await self._known.epoch_beyond(flow, record.epoch)
        if beyond is None:
            return record
        epoch = await asyncio.to_thread(self._store.raise_epoch, flow, beyond)
        _log.warning(
            "%s goes on in epoch %d, from the stored datamarker %s: it was served in later epochs than epoch %d of "
            "the marker "
            "store, so an older copy of the store was restored. What was delivered after that datamarker comes again. "
            "Next: nothing",
            flow_name(*flow),
            epoch,
            record.marker,
            record.epoch,
        )
        return replace(record, epoch=epoch)

    async def needed(self, application: str) -> list[LogPosition]:
        """The places from which an application's stored flows read; without stored flows, its stored start."""
        return _needed(application, await asyncio.to_thread(self._store.load, application), self._log)

    async def needed_without(self, applications: Collection[str]) -> dict[str, LogPosition]:
        """By name, the earliest place that each stored application outside ``applications`` needs.

        Such an application may be configured again, or its configuration cannot be read now. Its flows then continue at
        their datamarkers.
        """
        stored = await asyncio.to_thread(self._store.load)
        names = {name for name, _ in stored} - set(applications)
        return {name: min(_needed(name, stored, self._log)) for name in sorted(names)}

    async def _load(self, application: str) -> tuple[dict[FlowKey, StoredFlow], StoredFlow | None]:
        """The stored flows of the application, and its stored start."""
        flows = dict(await asyncio.to_thread(self._store.load, application))
        return flows, flows.pop(start_key(application, self._log), None)


def _needed(application: str, stored: Mapping[FlowKey, StoredFlow], log: str) -> list[LogPosition]:
    start = start_key(application, log)
    flows = [record for key, record in stored.items() if key[0] == application and key != start]
    return [record.marker.read_from for record in flows or ([stored[start]] if start in stored else [])]
