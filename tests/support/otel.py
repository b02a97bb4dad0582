"""An OpenTelemetry SDK in memory, as an application would have set it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from wormhole.metrics import otel

__all__ = ["Values", "read", "reader", "spans"]

Values = dict[tuple[str, ...], float]


@contextmanager
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """The global provider can be set once in a process, so its getter is replaced."""
    found = InMemoryMetricReader()
    provider = MeterProvider([found], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setattr(otel, "_bridges", {})
    yield found
    provider.shutdown()


@contextmanager
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemorySpanExporter, trace.Tracer]]:
    """What was traced, and a tracer of the application's."""
    found = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield found, provider.get_tracer("application")
    provider.shutdown()


def read(found: InMemoryMetricReader) -> Values:
    """One export: values by name and attributes, in the attributes' order."""
    data = found.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    return {
        (metric.name, *map(str, (point.attributes or {}).values())): point.value
        for scope in scopes
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
