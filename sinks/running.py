"""Runs one sink: an ordinary subscriber, with the metrics of its store beside its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping
from typing import Any

from sinks.settings import ConfiguredSink
from subscriber_sdk import serve

__all__ = ["run_sink"]

log = logging.getLogger("sinks")


async def run_sink(sink: ConfiguredSink, options: Mapping[str, Any]) -> None:
    """Receive updates until SIGTERM or SIGINT. ``options``: as of :func:`subscriber_sdk.serve`, ``coordinator`` among
    them. Raises as that, and :class:`~wormhole.model.errors.UsageError` for a kind that cannot be used here.
    """
    opened = sink.open()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(opened.close)
        running = await stack.enter_async_context(serve(opened.subscriber, application=sink.application, **options))
        log.info(
            "sink %s fills %s (%s) as %s/%s", sink.name, sink.kind.title, sink.kind.guarantee.value, sink.application,
            running.id,
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.stop)
            stack.callback(loop.remove_signal_handler, number)
        await running.stopped()
