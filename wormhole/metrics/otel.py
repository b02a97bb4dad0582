"""Metrics for OpenTelemetry: the samples of this process as observable instruments of its API package (extra ``otel``).

Names, labels and meanings are those of the list. Without the package nothing happens. Without an SDK nothing is read,
because an SDK requests values when it exports. The API has no observable histogram, so a histogram is three counters,
as in Prometheus: ``_bucket`` with the attribute ``le``, ``_count`` and ``_sum``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from wormhole import __version__
from wormhole.metrics.catalogue import METRICS
from wormhole.metrics.model import Exporter, HistogramSample, Kind, Sample

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, Observation

__all__ = ["exported", "on_this_loop"]

Samples = Iterable[Sample | HistogramSample]
_Value = tuple[float, dict[str, str]]

_ANSWER_S: Final = 10.0
_OF_HISTOGRAM: Final = ("_bucket", "_count", "_sum")


@contextlib.contextmanager
def exported(exporter: Exporter, samples: Callable[[], Samples]) -> Iterator[None]:
    """While the block runs, OpenTelemetry reads ``samples``, the values of ``exporter`` in this process.

    ``samples`` is called in the exporting thread. Several blocks may run at a time.
    """
    try:
        from opentelemetry import metrics
    except ImportError:
        yield
        return
    with _lock:
        bridge = _bridges.get(exporter)
        if bridge is None:
            meter = metrics.get_meter_provider().get_meter("wormhole", __version__)
            bridge = _bridges[exporter] = _Bridge(exporter, meter)
    bridge.sources.append(samples)
    try:
        yield
    finally:
        bridge.sources.remove(samples)


def on_this_loop(collect: Callable[[], Coroutine[Any, Any, Samples]]) -> Callable[[], Samples]:
    """``collect`` as a function that runs it on this event loop, for :func:`exported`. Call it in another thread."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(collect(), loop).result(_ANSWER_S)


class _Bridge:
    """The instruments of one exporter. They are never made twice, because an SDK warns about a second one of the same
    name.

    An SDK reads one instrument after the other. All take their values from one reading. Reading an instrument for the
    second time begins the next reading.
    """

    def __init__(self, exporter: Exporter, meter: Meter) -> None:
        self.sources: list[Callable[[], Samples]] = []
        self._lock = threading.Lock()
        self._values: Mapping[str, list[_Value]] = {}
        self._read: set[str] = set()
        for metric in METRICS:
            if metric.exporter is exporter:
                rises = metric.kind in {Kind.COUNTER, Kind.HISTOGRAM}
                create = meter.create_observable_counter if rises else meter.create_observable_gauge
                for suffix in _OF_HISTOGRAM if metric.kind is Kind.HISTOGRAM else ("",):
                    name = metric.name + suffix
                    create(name, [self._callback(name)], description=metric.meaning)

    def _callback(self, name: str) -> Callable[[object], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_: object) -> Iterable[Observation]:
            return [Observation(value, labels) for value, labels in self._reading(name)]

        return observe

    def _reading(self, name: str) -> list[_Value]:
        with self._lock:
            if not self._read or name in self._read:
                self._values = _by_name(sample for source in tuple(self.sources) for sample in source())
                self._read.clear()
            self._read.add(name)
            return self._values.get(name, [])


def _by_name(samples: Samples) -> Mapping[str, list[_Value]]:
    found: dict[str, list[_Value]] = {}

    def add(name: str, value: float, labels: dict[str, str]) -> None:
        found.setdefault(name, []).append((value, labels))

    for sample in samples:
        name, labels = sample.metric.name, dict(zip(sample.metric.labels, sample.labels, strict=True))
        if isinstance(sample, Sample):
            add(name, sample.value, labels)
            continue
        bucket, count, total = (name + suffix for suffix in _OF_HISTOGRAM)
        for bound, number in zip([*map(str, sample.metric.buckets), "+Inf"], accumulate(sample.counts), strict=True):
            add(bucket, number, {**labels, "le": bound})
        add(count, sum(sample.counts), labels)
        add(total, sample.total, labels)
    return found


_lock: Final = threading.Lock()
_bridges: Final[dict[Exporter, _Bridge]] = {}
