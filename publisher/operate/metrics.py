"""Collects the publisher's metrics from its parts when a scrape requests them. They cost nothing per update."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from publisher.flows.applications import Served
from publisher.flows.part_reports import Measured, Row
from publisher.flows.this_process import ThisProcess
from publisher.operate.flow_reports import FlowReports
from publisher.operate.readiness import ReadinessCheck
from publisher.push.stages import PublisherFlowState
from wormhole import __version__
from wormhole.coordination.port import Contact, Coordinator
from wormhole.host.clock import Clock
from wormhole.host.compiled import compiled_modules, hot_modules
from wormhole.host.waiting import in_turns
from wormhole.metrics import Histogram, HistogramSample, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.process import process_figures

__all__ = ["Metrics"]


class Metrics:
    """``parts``: the parts that have metrics."""

    def __init__(
        self,
        served: Served,
        process: ThisProcess,
        coordinator: Coordinator,
        readiness: ReadinessCheck,
        parts: Sequence[Measured],
        flows: FlowReports,
        clock: Clock,
    ) -> None:
        self._served = served
        self._process = process
        self._coordinator = coordinator
        self._readiness = readiness
        self._parts = parts
        self._flows = flows
        self._clock = clock

    async def collect(self) -> list[Sample | HistogramSample]:
        """All present samples. Takes several turns of the event loop if there are many flows."""
        served = self._served
        log = (served.dataset.name, served.copy, served.log)
        samples: list[Sample | HistogramSample] = []

        def add(row: Row) -> None:
            if isinstance(row[0], Histogram):
                histogram, *labels = row
                samples.append(histogram.sample(*log, *labels))
            else:
                metric, value, *labels = row
                if value is not None:
                    samples.append(Sample(metric, value, (*log, *labels)))

        for row in [*await asyncio.to_thread(_process), *self._whole()]:
            add(row)
        if served.trust is not None:
            ends, reloads = c.PUBLISHER_CERTIFICATE_ENDS, c.PUBLISHER_CERTIFICATE_RELOADS
            samples += await asyncio.to_thread(served.trust.samples, ends, reloads, *log)
        lead_flows = self._flows.lead_flows()
        states: Counter[tuple[str, PublisherFlowState]] = Counter()
        async for flow in in_turns(self._flows.flows.values()):
            state = self._flows.state(flow, lead_flows)
            states[flow.application, state] += 1
            for metric, value in self._flows.samples(flow, state):
                add((metric, value, flow.application, flow.shard))
        for (application, state), number in states.items():
            add((c.FLOWS, number, application, state.value))
        return samples

    def _whole(self) -> Iterator[Row]:
        """The samples that do not belong to single flows."""
        coordinator = self._coordinator
        yield c.PUBLISHER_START, self._process.started
        yield c.PUBLISHER_READY, self._readiness.found().ready
        yield c.PUBLISHER_COORDINATION, coordinator.contact is Contact.CONNECTED
        if coordinator.lease_s() != math.inf:
            silence = max(0.0, self._clock.monotonic() - coordinator.last_contact())
            yield c.PUBLISHER_COORDINATION_SILENCE, silence
        for part in self._parts:
            yield from part.samples()


def _process() -> list[Row]:
    """The metrics of the process, read from files of the system."""
    compiled, hot = len(compiled_modules()), len(hot_modules())
    figures = process_figures()
    return [
        (c.PUBLISHER_BUILD, 1, __version__, "yes" if compiled == hot else "partly" if compiled else "no"),
        (c.PUBLISHER_MEMORY, figures.resident_bytes),
        (c.PUBLISHER_CPU, figures.cpu_seconds),
        (c.PUBLISHER_FILES, figures.open_files),
    ]
