"""Runs one sink: an ordinary subscriber, whose store is closed after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from sinks.settings import ConfiguredSink
from subscriber_sdk import Running, SubscriberOptions
from subscriber_sdk.runner import serve_until_signal

__all__ = ["run_sink"]

_log = logging.getLogger("sinks")


async def run_sink(sink: ConfiguredSink, options: SubscriberOptions) -> None:
    """Receive updates until SIGTERM or SIGINT. ``options``: as of :func:`subscriber_sdk.serve`.

    Raises as that, and :class:`~wormhole.model.errors.UsageError` for a kind that cannot be used here.
    """
    opened = await asyncio.to_thread(sink.open)

    @contextlib.asynccontextmanager
    async def announced(running: Running) -> AsyncIterator[None]:
        title, guarantee = sink.kind.title, sink.kind.guarantee.value
        _log.info("sink %s fills %s (%s) as %s/%s", sink.name, title, guarantee, sink.application, running.id)
        yield

    try:
        await serve_until_signal(opened.subscriber, sink.application, options, announced)
    finally:
        await opened.close()
