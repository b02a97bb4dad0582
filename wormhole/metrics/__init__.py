"""Metrics: one typed list (:mod:`wormhole.metrics.catalogue`), which exporters and docs/metrics.md share.

:mod:`wormhole.metrics.text` writes values in Prometheus's format. :mod:`wormhole.metrics.exposition` passes them to
prometheus-client. No other module needs that package.
"""

from wormhole.metrics.catalogue import METRICS
from wormhole.metrics.model import Exporter, Histogram, HistogramSample, Kind, Metric, Sample

__all__ = ["METRICS", "Exporter", "Histogram", "HistogramSample", "Kind", "Metric", "Sample"]
