"""Runs one sink as an ordinary subscriber, watches its store, and closes the store at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from sinks.examination import StoreWatch
from sinks.port import Sink
from sinks.settings import ConfiguredSink
from subscriber_sdk import Running, SubscriberOptions
from subscriber_sdk.metrics import samples
from subscriber_sdk.runner import serve_until_signal
from wormhole import __version__
from wormhole.config import Config
from wormhole.host.ready_file import ReadyFile, process_started, write_ready
from wormhole.metrics import Exporter, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.otel import exported

__all__ = ["run_sink"]

_log = logging.getLogger("sinks")


async def run_sink(
    sink: ConfiguredSink,
    options: SubscriberOptions,
    config: Config,
    http: str = "",
    ready_file: Path | None = None,
) -> None:
    """Receive updates until SIGTERM or SIGINT. ``options``: the options of :func:`subscriber_sdk.serve`. ``config``:
    the configuration that has the sink. ``http``: the address that answers ``/metrics`` and ``/healthz``; empty: none.
    ``ready_file``: the file from which a monitor reads this address once the sink serves.

    Raises the errors of ``serve``, and :class:`~wormhole.model.errors.UsageError` for a kind that cannot be used.
    """
    opened = await asyncio.to_thread(sink.open)
    watch = StoreWatch(sink, lambda: opened.figures.written if opened.figures else 0)
    await watch.begin()

    @contextlib.asynccontextmanager
    async def announced(running: Running) -> AsyncIterator[None]:
        title, guarantee = sink.kind.title, sink.kind.guarantee.value
        _log.info("sink %s fills %s (%s) as %s/%s", sink.name, title, guarantee, sink.application, running.id)
        async with contextlib.AsyncExitStack() as stack:
            watching = asyncio.create_task(watch.run(), name=f"examine the store of sink {sink.name}")
            stack.callback(watching.cancel)
            own = partial(_samples, sink, opened, watch, running.id)
            stack.enter_context(exported(Exporter.SINK, own))
            if http:
                # Imported here, because only a sink with ``http`` needs an HTTP server.
                from wormhole.host.metrics_endpoint import metrics_endpoint

                every = lambda: [*samples(running), *own()]  # noqa: E731
                endpoint = metrics_endpoint(http, every, config.tls, insecure=config.insecure)
                address = await stack.enter_async_context(endpoint)
                if ready_file is not None:
                    pid = os.getpid()
                    ready = ReadyFile(pid, process_started(pid) or 0, "", address, __version__, "")
                    await asyncio.to_thread(write_ready, ready_file, ready)
            yield

    try:
        await serve_until_signal(opened.subscriber, sink.application, options, announced)
    finally:
        await opened.close()


def _samples(sink: ConfiguredSink, opened: Sink, watch: StoreWatch, subscriber: str) -> list[Sample]:
    labels = (sink.name, subscriber)
    codes = sorted({finding.known_code for finding in watch.problems})
    return [
        Sample(c.SINK_INFO, 1, (*labels, sink.kind.title, sink.kind.guarantee.value)),
        *(Sample(c.SINK_PROBLEM, 1, (*labels, code)) for code in codes),
        *(opened.figures.samples(*labels) if opened.figures else ()),
    ]
