"""The list keeps to Prometheus' conventions, which tools and people rely on."""

import re

import pytest

from wormhole.metrics import METRICS, Exporter, Kind, Metric

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
