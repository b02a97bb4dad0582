"""Records the callbacks as spans through OpenTelemetry's API package, if it is installed (extra ``otel``).

A span covers the callbacks of one batch, or with ``concurrency`` of the batches up to the next datamarker. Every
attempt has a span of its own, and the handler's spans are within it. No work is done per update.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from wormhole import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["Tracing", "tracing"]

_NO_SPAN: Final = contextlib.nullcontext()


def tracing(application: str, shard: str, epoch: int) -> Tracing | None:
    """The tracing of one epoch of a flow; ``None`` if the package is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    tracer = trace.get_tracer_provider().get_tracer("wormhole", __version__)

    def silent() -> bool:
        return isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    return Tracing(tracer, silent, application, shard, epoch)


class Tracing:
    """The spans of one epoch of a flow, one at a time. ``silent``: whether the application has not set up tracing
    (yet). A span that is not exported would cost more than a small batch.
    """

    def __init__(self, tracer: Tracer, silent: Callable[[], bool], application: str, shard: str, epoch: int) -> None:
        self._tracer = tracer
        self._silent = silent
        self._name = f"process {application}/{shard}"
        self._attributes: dict[str, str | int] = {
            "messaging.system": "wormhole",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": application,
            "messaging.destination.name": f"{application}/{shard}",
            "wormhole.epoch": epoch,
        }
        self._span: Span | None = None
        self._updates = 0
        self._tables: set[str] = set()

    def batch(self, *, replayed: bool) -> AbstractContextManager[None]:
        """Open a span while callbacks run. An exception of a callback is recorded in the span, and raised."""
        return _NO_SPAN if self._silent() else self._of_batch(replayed=replayed)

    @contextlib.contextmanager
    def _of_batch(self, *, replayed: bool) -> Iterator[None]:
        from opentelemetry.trace import SpanKind

        attributes = {**self._attributes, "wormhole.replayed": replayed}
        with self._tracer.start_as_current_span(self._name, kind=SpanKind.CONSUMER, attributes=attributes) as span:
            if not span.is_recording():
                yield
                return
            self._span, self._updates, self._tables = span, 0, set()
            try:
                yield
            finally:
                self._span = None

    def parsed(self, updates: int, tables: Iterable[str], committed_at_us: Sequence[int]) -> None:
        """Add a body to the current span: its number of updates, their tables, and the commit times of its
        transactions."""
        span = self._span
        if span is None:
            return
        self._updates += updates
        self._tables.update(tables)
        span.set_attribute("messaging.batch.message_count", self._updates)
        span.set_attribute("wormhole.tables", sorted(self._tables))
        if newest := max(committed_at_us, default=0):
            span.set_attribute("wormhole.lag_seconds", time.time() - newest / 1e6)
