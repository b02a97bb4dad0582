"""Metrics: the catalogue, their values, and their text form."""

from __future__ import annotations

import math
import os
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wormhole.metrics import METRICS, Exporter, Histogram, HistogramSample, Kind, Metric, Sample
from wormhole.metrics.exposition import SampleCollector, families
from wormhole.metrics.process import process_figures
from wormhole.metrics.text import render

# --- The list keeps to Prometheus' conventions, which tools and people rely on


_UNITS = {"seconds", "bytes"}
_NO_UNITS = {"milliseconds", "ms", "us", "kib", "kb", "mb", "mib", "minutes", "percent"}


def test_names_are_unique_and_each_constant_is_in_the_list() -> None:
    from wormhole.metrics import catalogue

    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert len(METRICS) == sum(isinstance(value, Metric) for value in vars(catalogue).values())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"wormhole_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is Kind.INFO)
    assert not _NO_UNITS & set(metric.name.split("_"))
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.rpartition("_")[2] in _UNITS
    assert metric.meaning.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels)
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)  # Prometheus' own
    if metric.exporter is Exporter.PUBLISHER:
        assert metric.labels[:3] == ("dataset", "copy", "log")  # a monitor joins its publishers' metrics as they are


# --- A histogram counts what fits under each bound


_METRIC = Metric("wormhole_x_seconds", Kind.HISTOGRAM, Exporter.PUBLISHER, ("application",), "X.", (0.1, 1.0))


def test_a_bound_is_part_of_its_bucket_and_what_exceeds_all_is_counted_last() -> None:
    histogram = Histogram(_METRIC)
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    sample = histogram.sample("cache")
    assert sample.counts == (2, 1, 1)
    assert sample.total == 7.65
    assert sample.labels == ("cache",)


# --- What is written can be read back, by prometheus-client's own parser


_COUNT = Metric("wormhole_x_total", Kind.COUNTER, Exporter.PUBLISHER, ("shard",), "Xs.")
_LEVEL = Metric("wormhole_level_bytes", Kind.GAUGE, Exporter.PUBLISHER, (), "Level.")
_ABOUT = Metric("wormhole_about_info", Kind.INFO, Exporter.PUBLISHER, ("version",), "About.")
_TIMES = Metric("wormhole_times_seconds", Kind.HISTOGRAM, Exporter.PUBLISHER, ("shard",), "Times.", (0.1, 1.0))


def _values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_each_kind_is_written_under_its_name() -> None:
    histogram = Histogram(_TIMES)
    for value in (0.05, 0.5, 7.0):
        histogram.observe(value)
    count, more = Sample(_COUNT, 3, ("a",)), Sample(_COUNT, 4, ("b",))
    text = render([count, Sample(_LEVEL, 5), histogram.sample("a"), more, Sample(_ABOUT, 1, ("0.1",))])
    values = _values(text)
    assert values[("wormhole_x_total", (("shard", "a"),))] == 3
    assert values[("wormhole_x_total", (("shard", "b"),))] == 4
    assert values[("wormhole_level_bytes", ())] == 5
    assert values[("wormhole_about_info", (("version", "0.1"),))] == 1
    buckets = [values[("wormhole_times_seconds_bucket", (("le", le), ("shard", "a")))] for le in ("0.1", "1.0", "+Inf")]
    assert buckets == [1, 2, 3]
    assert values[("wormhole_times_seconds_sum", (("shard", "a"),))] == 7.55
    assert text.decode().count("# TYPE wormhole_x_total counter") == 1


def test_a_label_that_a_peer_chose_breaks_no_line() -> None:
    name = 'a"b\\c\nwormhole_forged 1'
    text = render([Sample(_COUNT, 3, (name,))])
    assert _values(text) == {("wormhole_x_total", (("shard", name),)): 3}


def test_a_sample_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="wormhole_times_seconds is a histogram"):
        render([Sample(_TIMES, 1, ("a",))])
    with pytest.raises(ValueError, match="label"):
        render([Sample(_COUNT, 1)])


def test_values_that_are_no_plain_numbers() -> None:
    samples = [Sample(_COUNT, value, (str(value),)) for value in (math.inf, -math.inf, math.nan, 1e22, 1e-9, True)]
    values = {labels[0][1]: value for (_, labels), value in _values(render(samples)).items()}
    assert math.isnan(values.pop("nan"))
    assert values == {"inf": math.inf, "-inf": -math.inf, "1e+22": 1e22, "1e-09": 1e-9, "True": 1.0}


def test_it_says_what_prometheus_client_says() -> None:
    histogram = Histogram(_TIMES)
    for value in (0.05, 0.5, 7.0):
        histogram.observe(value)
    samples: list[Sample | HistogramSample] = [
        Sample(_COUNT, 3, ('a"\\b',)),
        Sample(_LEVEL, 5),
        histogram.sample("a"),
        Sample(_ABOUT, 1, ("0.1",)),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(lambda: samples))
    ours, theirs = render(samples), generate_latest(registry)
    assert _values(ours) == _values(theirs)
    headers = [[line for line in text.decode().splitlines() if line.startswith("#")] for text in (ours, theirs)]
    assert headers[0] == headers[1]


# --- What a registry of prometheus-client is given


def test_what_has_other_labels_than_its_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="label"):
        families([Sample(_COUNT, 1)])


def test_a_registry_asks_at_every_scrape() -> None:
    asked = []
    registry = CollectorRegistry(auto_describe=True)

    def samples() -> list[Sample]:
        asked.append(1)
        return [Sample(_COUNT, len(asked), ("a",))]

    registry.register(SampleCollector(samples))
    assert not asked
    assert [registry.get_sample_value("wormhole_x_total", {"shard": "a"}) for _ in range(2)] == [1, 2]


# --- The kernel's figures of this very process


def test_figures_are_of_this_process() -> None:
    before = process_figures()
    assert before.resident_bytes is not None
    assert 1 << 20 < before.resident_bytes < 1 << 36
    assert before.open_files is not None
    with open(os.devnull) as one:
        assert one.fileno() >= 0
        after = process_figures()
    assert after.open_files == before.open_files + 1
    assert after.cpu_seconds >= before.cpu_seconds > 0
