"""``/metrics``, ``/healthz`` and ``/readyz`` of a host: one answer for the monitor and all of its publishers.

A scraper needs one address per host, because the monitor knows the ports of its publishers, which change with every
start. The metrics of a publisher that does not answer in time are omitted, and ``wormhole_monitor_publisher_up`` is 0.
Old values would look as if the publisher made no progress.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiohttp import web

from monitor.health import health
from monitor.publisher_client import NoAnswerError, PublisherClient
from monitor.state import HostState, Phase, ProcessKey, ProcessState, SinkKey
from wormhole import __version__
from wormhole.metrics import Exporter, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.otel import exported, on_this_loop
from wormhole.metrics.process import ProcessFigures, process_figures
from wormhole.metrics.text import CONTENT_TYPE, render
from wormhole.model.errors import WormholeError
from wormhole.model.visible import visible

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["HostMetrics", "add_routes", "merge", "parse", "samples"]

_log = logging.getLogger(__name__)

_ANSWER_S: Final = 3.0  # Prometheus gives the whole scrape 10 s
_AT_ONCE: Final = 8
_HEADER = re.compile(r"# (HELP|TYPE) (wormhole_[a-z0-9_]+) (.+)")
_SAMPLE = re.compile(
    r'(wormhole_[a-z0-9_]+)(?:\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (?:[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|[-+]?Inf|NaN)',
    re.IGNORECASE,
)


def samples(state: HostState, up: Iterable[ProcessKey], process: ProcessFigures, now: float) -> Iterator[Sample]:
    """The monitor's own samples. ``up``: the processes whose metrics are in the same answer; ``now``: seconds since
    1970."""
    host, answered = state.host, frozenset(up)
    yield Sample(c.MONITOR_BUILD, 1, (host, __version__))
    yield Sample(c.MONITOR_START, state.started, (host,))
    yield Sample(c.MONITOR_CPU, process.cpu_seconds, (host,))
    for metric, value in ((c.MONITOR_MEMORY, process.resident_bytes), (c.MONITOR_FILES, process.open_files)):
        if value is not None:
            yield Sample(metric, value, (host,))
    yield Sample(c.MONITOR_READY, health(state, now).ready, (host,))
    yield Sample(c.MONITOR_DRAINED, state.drained, (host,))
    if state.coordination != "static":
        yield Sample(c.MONITOR_COORDINATION, state.coordination == "connected", (host,))
    phases = Counter(publisher.phase for publisher in state.publishers.values())
    for phase in Phase:
        yield Sample(c.MONITOR_PUBLISHERS, phases[phase], (host, phase.label))
    for key, publisher in sorted(state.publishers.items()):
        labels = (host, key.dataset, key.copy, key.log)
        yield Sample(c.MONITOR_UP, key in answered, labels)
        yield Sample(c.MONITOR_GAVE_UP, publisher.phase is Phase.GIVEN_UP, labels)
        yield Sample(c.MONITOR_RESTARTS, publisher.restarts, labels)
        if publisher.phase is Phase.RUNNING:
            yield Sample(c.MONITOR_SILENCE, publisher.silent_s(now), labels)
    for sink in sorted(state.sinks):
        yield Sample(c.MONITOR_SINK_UP, sink in answered, (host, sink.name))


@dataclass(slots=True)
class _Family:
    """A metric family. ``header``: the HELP and TYPE lines; ``type``: the type in the TYPE line."""

    header: list[str] = field(default_factory=list)
    type: str = ""
    lines: list[str] = field(default_factory=list)


def parse(text: str) -> dict[str, _Family]:
    """The families of one answer by name. Raises ``ValueError`` for text that no publisher writes."""
    found: dict[str, _Family] = {}
    name = ""
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header is not None:
            name = header[2]
            family = found.setdefault(name, _Family())
            family.header.append(line)
            if header[1] == "TYPE":
                family.type = header[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None or not name or not sample[1].startswith(name):
            raise ValueError(f"not a line of a publisher: {line[:80]!r}")
        found[name].lines.append(line)
    return found


def merge(answers: Iterable[dict[str, _Family]]) -> str:
    """Merge several answers into one, which has each family once.

    During an upgrade, publishers of two releases may describe a family differently. Then the first description is used,
    and samples of another type are omitted.
    """
    whole: dict[str, _Family] = {}
    for answer in answers:
        for name, family in answer.items():
            first = whole.setdefault(name, _Family(family.header, family.type))
            if first.type == family.type:
                first.lines += family.lines
    lines = (line for family in whole.values() if family.lines for line in (*family.header, *family.lines))
    return "".join(f"{line}\n" for line in lines)


class HostMetrics:
    """Collects the metrics of the publishers and sinks of ``state`` for each call of
    :meth:`text`.

    ``trust``: see :class:`~monitor.publisher_client.PublisherClient`.
    """

    def __init__(self, state: HostState, trust: Trust | None = None) -> None:
        self._state = state
        self._trust = trust
        self._client = PublisherClient(trust)
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def text(self) -> bytes:
        """All metrics of this host, in Prometheus' format."""
        state = self._state
        processes: list[ProcessState] = [*state.publishers.values(), *state.sinks.values()]
        listening = [one for one in processes if one.http and one.pid is not None]
        fetched = zip(listening, await asyncio.gather(*map(self._fetch, listening)), strict=True)
        answers = {one.key: answer for one, answer in fetched if answer is not None}
        own = render(await self._own(answers)).decode()
        return await asyncio.to_thread(lambda: merge([parse(own), *answers.values()]).encode())

    async def for_otel(self) -> list[Sample]:
        """The monitor's own samples for OpenTelemetry. They omit whether each publisher answers, because publishers
        export their own metrics."""
        answers = (c.MONITOR_UP, c.MONITOR_SINK_UP)
        return [sample for sample in await self._own(()) if sample.metric not in answers]

    async def _own(self, answered: Iterable[ProcessKey]) -> list[Sample]:
        state, process = self._state, await asyncio.to_thread(process_figures)
        found = [*samples(state, answered, process, state.clock.wall())]
        if self._trust is not None:
            ends, reloads = c.MONITOR_CERTIFICATE_ENDS, c.MONITOR_CERTIFICATE_RELOADS
            found += await asyncio.to_thread(self._trust.samples, ends, reloads, state.host)
        return found

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _fetch(self, publisher: ProcessState) -> dict[str, _Family] | None:
        """The metrics of a publisher or sink; ``None`` if it does not answer in time, or if another process answers at
        its address.
        """
        try:
            async with self._at_once:
                await self._client.start()
                body = await self._client.get(publisher.http, "/metrics", _ANSWER_S)
            return await asyncio.to_thread(_families_of, publisher.key, body)
        except (NoAnswerError, ValueError, WormholeError) as error:
            _log.debug("no metrics of %s at %s: %r", publisher.key, publisher.http, error)
            return None


def _families_of(key: ProcessKey, body: bytearray) -> dict[str, _Family]:
    """The families in the answer of a publisher or a sink.

    Raises ``ValueError`` if the answer is from another process than ``key``, which may have its port now.
    """
    answer = parse(body.decode())
    if isinstance(key, SinkKey):
        infos = answer.get(c.SINK_INFO.name, _Family()).lines
        if not any(line.startswith(f'{c.SINK_INFO.name}{{sink="{key.name}",') for line in infos):
            raise ValueError("another sink answers there")
        return answer
    own = render([Sample(c.PUBLISHER_READY, 1, (key.dataset, key.copy, key.log))]).decode()
    expected = own.splitlines()[-1].rpartition(" ")[0]
    ready = answer.get(c.PUBLISHER_READY.name, _Family()).lines
    if [line.rpartition(" ")[0] for line in ready] != [expected]:
        raise ValueError("another publisher answers there")
    return answer


def add_routes(app: web.Application, state: HostState, trust: Trust | None = None) -> None:
    """While ``app`` runs, answer ``/metrics``, ``/healthz`` and ``/readyz``, and export metrics to OpenTelemetry."""
    host_metrics = HostMetrics(state, trust)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=await host_metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        found = health(state, state.clock.wall())
        text = "ready\n" if found.ready else "".join(f"{visible(reason)}\n" for reason in found.reasons)
        return web.Response(text=text, status=200 if found.ready else 503)

    async def lifetime(app: web.Application) -> AsyncIterator[None]:
        with exported(Exporter.MONITOR, on_this_loop(host_metrics.for_otel)):
            yield
        await host_metrics.close()

    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    app.cleanup_ctx.append(lifetime)
