"""What is written can be read back, by prometheus-client's own parser."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from wormhole.metrics.exposition import SampleCollector, families, render
from wormhole.metrics.model import Exporter, Histogram, Kind, Metric, Sample

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
    text = render(families([count, Sample(_LEVEL, 5), histogram.sample("a"), more, Sample(_ABOUT, 1, ("0.1",))]))
    values = _values(text)
    assert values[("wormhole_x_total", (("shard", "a"),))] == 3
    assert values[("wormhole_x_total", (("shard", "b"),))] == 4
    assert values[("wormhole_level_bytes", ())] == 5
    assert values[("wormhole_about_info", (("version", "0.1"),))] == 1
    buckets = [values[("wormhole_times_seconds_bucket", (("le", le), ("shard", "a")))] for le in ("0.1", "1.0", "+Inf")]
    assert buckets == [1, 2, 3]
    assert values[("wormhole_times_seconds_sum", (("shard", "a"),))] == 7.55
    assert text.decode().count("# TYPE wormhole_x_total counter") == 1


def test_a_label_that_somebody_else_chose_breaks_no_line() -> None:
    name = 'a"b\\c\nwormhole_forged 1'
    text = render(families([Sample(_COUNT, 3, (name,))]))
    assert _values(text) == {("wormhole_x_total", (("shard", name),)): 3}


def test_a_sample_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="wormhole_times_seconds is a histogram"):
        families([Sample(_TIMES, 1, ("a",))])
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
