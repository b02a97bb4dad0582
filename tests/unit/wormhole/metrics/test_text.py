"""What is written can be read back, by prometheus-client's own parser."""

import math

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wormhole.metrics.exposition import SampleCollector
from wormhole.metrics.model import Exporter, Histogram, HistogramSample, Kind, Metric, Sample
from wormhole.metrics.text import render

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
