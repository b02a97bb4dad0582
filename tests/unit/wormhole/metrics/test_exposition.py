"""What a registry of prometheus-client is given."""

import pytest
from prometheus_client import CollectorRegistry

from wormhole.metrics.exposition import SampleCollector, families
from wormhole.metrics.model import Exporter, Kind, Metric, Sample

_COUNT = Metric("wormhole_x_total", Kind.COUNTER, Exporter.PUBLISHER, ("shard",), "Xs.")


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
