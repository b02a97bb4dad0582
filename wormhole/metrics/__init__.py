"""Metrics: one typed list (:mod:`wormhole.metrics.catalogue`), which exporters and docs/metrics.md share.

:mod:`wormhole.metrics.text` writes values as Prometheus reads them, :mod:`wormhole.metrics.exposition` gives them to
prometheus-client, which it alone needs.
"""

from wormhole.metrics.catalogue import METRICS
from wormhole.metrics.model import Exporter, Histogram, HistogramSample, Kind, Metric, Sample

__all__ = ["METRICS", "Exporter", "Histogram", "HistogramSample", "Kind", "Metric", "Sample"]
