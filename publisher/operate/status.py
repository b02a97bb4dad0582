"""Makes a publisher's status message (``wormhole.wire.v1.PublisherStatus``)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from publisher.flows.applications import Served
from publisher.flows.part_reports import Described
from publisher.flows.this_process import ThisProcess
from publisher.operate.flow_reports import FlowReports
from wormhole import __version__
from wormhole.coordination.port import Coordinator
from wormhole.host.clock import Clock
from wormhole.host.compiled import compiled_modules
from wormhole.host.local_admin import token_path
from wormhole.wire.v1 import admin_pb2

__all__ = ["StatusReports"]

# The size of one page of the report on flows. It is well below the 4 MiB of a gRPC message, and it bounds the time
# that the event loop needs for a page.
_PAGE_BYTES: Final = 2 << 20
_PAGE_FLOWS: Final = 500


class StatusReports:
    """See the module. ``parts``: the parts that add their state. A part may read the state of an earlier part."""

    def __init__(
        self,
        served: Served,
        process: ThisProcess,
        coordinator: Coordinator,
        parts: Sequence[Described],
        flows: FlowReports,
        clock: Clock,
    ) -> None:
        self._served = served
        self._process = process
        self._coordinator = coordinator
        self._parts = parts
        self._flows = flows
        self._clock = clock

    async def whole(self) -> admin_pb2.PublisherStatus:
        """The publisher's state with all flows. With many flows this takes several turns of the event loop."""
        message = self.status()
        while message.more:
            await asyncio.sleep(0)
            page = self.status(after=message.more)
            message.flows.extend(page.flows)
            message.more = page.more
        return message

    def status(self, only: str = "", after: str = "") -> admin_pb2.PublisherStatus:
        """The publisher's present state, with a page of its flows. ``only``: the only flow to report. ``after``: the
        last flow of the page before; then the message contains only flows.
        """
        served = self._served
        message = admin_pb2.PublisherStatus(dataset=served.dataset.name, copy=served.copy, log=served.log)
        if not after:
            self._add_process(message)
            for part in self._parts:
                part.describe(message)
        self._add_flows(message, only, after)
        return message

    def _add_flows(self, message: admin_pb2.PublisherStatus, only: str, after: str) -> None:
        lead_flows = self._flows.lead_flows()
        flows = {flow.name: flow for flow in self._flows.flows.values()}
        names = sorted(name for name in flows if name > after) if not only else [only] if only in flows else []
        size = 0
        for count, name in enumerate(names):
            flow = self._flows.status(flows[name], lead_flows)
            size += flow.ByteSize()
            if count and (size > _PAGE_BYTES or count == _PAGE_FLOWS):
                message.more = names[count - 1]
                return
            message.flows.append(flow)

    def _add_process(self, message: admin_pb2.PublisherStatus) -> None:
        process = self._process
        message.version = __version__
        message.compiled.extend(compiled_modules())
        message.uptime_s = self._clock.wall() - process.started
        message.coordination = self._coordinator.contact.value
        message.token_file = str(token_path(self._served.settings.state_dir))
        message.host, message.pid = process.host, os.getpid()
        message.http_address, message.admin_address = process.http_address, process.admin_address
        message.source = self._served.kind
