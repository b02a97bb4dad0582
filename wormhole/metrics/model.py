"""What a metric is, and values of it. Standard library only: applications that receive updates import this too."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

__all__ = ["Exporter", "Histogram", "HistogramSample", "Kind", "Metric", "Sample"]


class Kind(Enum):
    """How values of a metric behave."""

    COUNTER = "counter"
    """Only rises; begins at 0 with the process, or with the flow or stream that it belongs to."""
    GAUGE = "gauge"
    """Rises and falls."""
    HISTOGRAM = "histogram"
    """How often a value fell below each of some bounds."""
    INFO = "info"
    """Always 1; its labels have the content."""


class Exporter(Enum):
    """Which process exports a metric."""

    PUBLISHER = "publisher"
    MONITOR = "monitor"
    SUBSCRIBER = "subscriber"
    ARCHIVER = "archiver"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the list. ``name`` as it is read in Prometheus, with its unit; ``meaning`` one sentence or two.

    ``labels``: names, in the order in which a :class:`Sample` gives their values. ``buckets``: upper bounds of a
    histogram, ascending, without infinity.
    """

    name: str
    kind: Kind
    exporter: Exporter
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a counter, gauge or info just now. ``labels``: values for the metric's label names."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """A histogram just now.

    ``counts``: how many values fell into each bucket, the last one for what exceeds all bounds; ``total``: their sum.
    """

    metric: Metric
    counts: tuple[int, ...]
    total: float
    labels: tuple[str, ...] = ()


class Histogram:
    """Counts values by size; one addition for each."""

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
        """What was counted so far."""
        return HistogramSample(self.metric, tuple(self._counts), self._total, labels)
