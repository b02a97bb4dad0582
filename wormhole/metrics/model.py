"""The types of metrics and of their values. Standard library only, because applications that receive updates import
this module too.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

__all__ = ["Exporter", "Histogram", "HistogramSample", "Kind", "Metric", "Sample"]


class Kind(Enum):
    """The behaviour of a metric's values."""

    COUNTER = "counter"
    """The value only rises. It begins at 0 with the process, or with its flow or stream."""
    GAUGE = "gauge"
    """Rises and falls."""
    HISTOGRAM = "histogram"
    """How often a value was below each of several bounds."""
    INFO = "info"
    """The value is always 1. The labels have the content."""


class Exporter(Enum):
    """The process that exports a metric."""

    PUBLISHER = "publisher"
    MONITOR = "monitor"
    SUBSCRIBER = "subscriber"
    ARCHIVER = "archiver"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the list.

    ``name``: its name in Prometheus, with its unit. ``meaning``: one sentence or two. ``labels``: names, in the order
    in which a :class:`Sample` has their values. ``buckets``: upper bounds of a histogram, ascending, without infinity.
    """

    name: str
    kind: Kind
    exporter: Exporter
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """The present value of a counter, gauge or info. ``labels``: values for the metric's label names."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """The present content of a histogram.

    ``counts``: how many values were in each bucket; the last one is for values beyond all bounds. ``total``: their sum.
    """

    metric: Metric
    counts: tuple[int, ...]
    total: float
    labels: tuple[str, ...] = ()


class Histogram:
    """Counts values by bucket, and adds them up."""

    __slots__ = ("_counts", "_total", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts = [0] * (len(metric.buckets) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``."""
        self._counts[bisect_left(self.metric.buckets, value)] += 1
        self._total += value

    def sample(self, *labels: str) -> HistogramSample:
        """The counts so far."""
        return HistogramSample(self.metric, tuple(self._counts), self._total, labels)
