"""Every metric of the list reaches an OpenTelemetry SDK, and nothing happens without its API package."""

from __future__ import annotations

import logging
import sys

import pytest

from tests.support.otel import read, reader
from wormhole.metrics import METRICS, Exporter, HistogramSample, Kind, Metric, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.otel import Samples, exported

PUBLISHER = [metric for metric in METRICS if metric.exporter is Exporter.PUBLISHER]


def one_of(metric: Metric, value: int) -> Sample | HistogramSample:
    if metric.kind is Kind.HISTOGRAM:
        return HistogramSample(metric, (value,) * (len(metric.buckets) + 1), value / 2, metric.labels)
    return Sample(metric, value, metric.labels)


def test_an_export_is_one_reading_of_every_metric(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readings = 0

    def samples() -> Samples:
        nonlocal readings
        readings += 1
        return [one_of(metric, readings) for metric in PUBLISHER]

    with reader(monkeypatch) as sdk:
        assert read(sdk) == {}
        for _ in range(2):  # what ends and begins again makes no instrument twice
            with exported(Exporter.PUBLISHER, samples):
                found = read(sdk)
        assert readings == 2
        assert read(sdk) == {}
    plain = {(metric.name, *metric.labels) for metric in PUBLISHER if metric.kind is not Kind.HISTOGRAM}
    assert {name: found[name] for name in plain} == dict.fromkeys(plain, 2)
    log = c.MARKER_WRITE.labels
    name, buckets = c.MARKER_WRITE.name, len(c.MARKER_WRITE.buckets)
    assert found[f"{name}_bucket", *log, "0.001"] == 2
    assert found[f"{name}_bucket", *log, "+Inf"] == found[f"{name}_count", *log] == 2 * (buckets + 1)
    assert found[f"{name}_sum", *log] == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_several_sources_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(subscriber: str) -> list[Sample]:
        return [Sample(c.SUBSCRIBER_STREAMS, 1, ("cache", subscriber))]

    with (
        reader(monkeypatch) as sdk,
        exported(Exporter.SUBSCRIBER, lambda: of("one")),
        exported(Exporter.SUBSCRIBER, lambda: of("two")),
    ):
        assert read(sdk) == {(c.SUBSCRIBER_STREAMS.name, "cache", one): 1 for one in ("one", "two")}


def test_nothing_is_read_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with exported(Exporter.SUBSCRIBER, lambda: pytest.fail("read")):
        pass
