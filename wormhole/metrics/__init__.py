"""Metrics: one typed list (:mod:`wormhole.metrics.catalogue`), which exporters and docs/metrics.md share.

:mod:`wormhole.metrics.exposition` writes values as Prometheus reads them; it alone needs prometheus-client.
"""

from wormhole.metrics.catalogue import METRICS
from wormhole.metrics.model import Exporter, Histogram, HistogramSample, Kind, Metric, Sample

__all__ = ["METRICS", "Exporter", "Histogram", "HistogramSample", "Kind", "Metric", "Sample"]
