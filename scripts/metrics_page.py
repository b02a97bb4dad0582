"""Writes the lists of docs/metrics.md from the catalogue of metrics. A test compares them.

python -m scripts.metrics_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts.prepare import ROOT
from scripts.prose import bullet
from wormhole.metrics import METRICS, Exporter

__all__ = ["PAGE", "filled", "main"]

PAGE = ROOT / "docs" / "metrics.md"


def _items(exporter: Exporter) -> str:
    common = {
        Exporter.PUBLISHER: {"dataset", "copy", "log"},
        Exporter.MONITOR: {"host"},
        Exporter.SUBSCRIBER: {"application", "subscriber"},
        Exporter.ARCHIVER: {"dataset"},
        Exporter.SINK: {"sink", "subscriber"},
    }[exporter]
    items = []
    for metric in METRICS:
        if metric.exporter is exporter:
            labels = "".join(f", `{label}`" for label in metric.labels[len(common) :])
            items.append(bullet(f"`{metric.name}` ({metric.kind.value}{labels}): {metric.meaning}"))
    return "\n".join(items)


def filled(page: str) -> str:
    """The page with a new list of each exporter's metrics, between ``<!-- NAME -->`` and ``<!-- end -->``."""
    for exporter in Exporter:
        before, mark, rest = page.partition(f"<!-- {exporter.value} -->\n")
        if not mark:
            raise ValueError(f"docs/metrics.md has no place for the metrics of a {exporter.value}")
        page = f"{before}{mark}{_items(exporter)}\n{rest[rest.index('<!-- end -->') :]}"
    return page


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as it should be."""
    page = PAGE.read_text()
    wanted = filled(page)
    if arguments == ["--check"]:
        if page != wanted:
            print("docs/metrics.md does not match wormhole/metrics/catalogue.py: run python -m scripts.metrics_page")
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
