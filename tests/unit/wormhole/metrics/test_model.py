"""A histogram counts what fits under each bound."""

from wormhole.metrics.model import Exporter, Histogram, Kind, Metric

_METRIC = Metric("wormhole_x_seconds", Kind.HISTOGRAM, Exporter.PUBLISHER, ("application",), "X.", (0.1, 1.0))


def test_a_bound_is_part_of_its_bucket_and_what_exceeds_all_is_counted_last() -> None:
    histogram = Histogram(_METRIC)
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    sample = histogram.sample("cache")
    assert sample.counts == (2, 1, 1)
    assert sample.total == 7.65
    assert sample.labels == ("cache",)
