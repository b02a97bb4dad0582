"""Metrics for an application that uses prometheus-client. Wormhole's own processes use :mod:`wormhole.metrics.text`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from wormhole.metrics.model import HistogramSample, Kind, Metric, Sample
from wormhole.metrics.text import check

__all__ = ["SampleCollector", "families", "family_name"]

Samples = Iterable[Sample | HistogramSample]


def family_name(metric: Metric) -> str:
    """The name of the metric's family: the text format adds ``_total`` and ``_info`` to it again."""
    return metric.name.removesuffix({Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(metric.kind, ""))


def families(samples: Samples) -> list[Family]:
    """The samples by metric. Each metric is included once, in the order of first occurrence.

    Raises as :func:`~wormhole.metrics.text.check`.
    """
    found: dict[str, Family] = {}
    for sample in samples:
        check(sample)
        metric = sample.metric
        family = found.get(metric.name)
        if family is None:
            family = found[metric.name] = _family(metric)
        if isinstance(family, HistogramMetricFamily) and isinstance(sample, HistogramSample):
            bounds = [*map(str, metric.buckets), "+Inf"]
            family.add_metric(
                sample.labels, list(zip(bounds, accumulate(sample.counts), strict=True)), sum_value=sample.total
            )
        elif isinstance(family, InfoMetricFamily):
            family.add_metric((), dict(zip(metric.labels, sample.labels, strict=True)))
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and isinstance(sample, Sample):
            family.add_metric(sample.labels, sample.value)
    return list(found.values())


def _family(metric: Metric) -> Family:
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(family_name(metric), metric.meaning, labels=metric.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.INFO:
            return InfoMetricFamily(family_name(metric), metric.meaning)


class SampleCollector(Collector):
    """A collector for a registry of prometheus-client, which calls it in the thread that serves the scrape."""

    def __init__(self, samples: Callable[[], Samples]) -> None:
        self._samples = samples

    def collect(self) -> list[Family]:
        """All present samples."""
        return families(self._samples())

    def describe(self) -> Sequence[Family]:
        """Return nothing. Otherwise the registry would collect when this collector is registered."""
        return ()
