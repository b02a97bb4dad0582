"""Writes metrics and their values in the text format that Prometheus reads.

Standard library only: a library for it takes 2 MB of memory in every process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from wormhole.metrics.model import HistogramSample, Kind, Metric, Sample

__all__ = ["CONTENT_TYPE", "check", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_TYPES: Final = {
    Kind.COUNTER: "counter",
    Kind.GAUGE: "gauge",
    Kind.HISTOGRAM: "histogram",
    Kind.INFO: "gauge",  # the format has no type for an info
}


def check(sample: Sample | HistogramSample) -> None:
    """Raise ``ValueError`` for labels that are not the metric's, ``TypeError`` for a value that is not of its kind."""
    metric = sample.metric
    if len(sample.labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not values for them: {sample.labels}")
    if isinstance(sample, HistogramSample) != (metric.kind is Kind.HISTOGRAM):
        raise TypeError(f"{metric.name} is a {metric.kind.value}: not for a {type(sample).__name__}")


def render(samples: Iterable[Sample | HistogramSample]) -> bytes:
    """The samples as text. Each metric is included once, in the order of first occurrence. Blocks for a while when
    there are many samples. Raises as :func:`check`.
    """
    found: dict[str, list[str]] = {}
    for sample in samples:
        check(sample)
        lines = found.get(sample.metric.name)
        if lines is None:
            lines = found[sample.metric.name] = _header(sample.metric)
        lines.extend(_histogram(sample) if isinstance(sample, HistogramSample) else _value(sample))
    return "".join(f"{line}\n" for lines in found.values() for line in lines).encode()


def _header(metric: Metric) -> list[str]:
    meaning = metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {metric.name} {meaning}", f"# TYPE {metric.name} {_TYPES[metric.kind]}"]


def _value(sample: Sample) -> Iterator[str]:
    metric = sample.metric
    value = 1.0 if metric.kind is Kind.INFO else sample.value
    yield f"{metric.name}{_labels(zip(metric.labels, sample.labels, strict=True))} {_number(value)}"


def _histogram(sample: HistogramSample) -> Iterator[str]:
    name = sample.metric.name
    labels = [*zip(sample.metric.labels, sample.labels, strict=True)]
    counts = [*accumulate(sample.counts)]
    for bound, count in zip([*map(str, sample.metric.buckets), "+Inf"], counts, strict=True):
        yield f"{name}_bucket{_labels([*labels, ('le', bound)])} {_number(count)}"
    yield f"{name}_count{_labels(labels)} {_number(counts[-1])}"
    yield f"{name}_sum{_labels(labels)} {_number(sample.total)}"


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{text}}}" if text else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
