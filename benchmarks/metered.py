"""The real publisher with a meter at its reader. Run as ``python -m benchmarks.metered CONFIG FIGURES``.

When it ends it writes to the file ``FIGURES`` what each read took:
``[[seconds (monotonic), number of the reader, bytes of log], ...]``.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from publisher import daemon
from publisher.sources import open_source
from wormhole.config import load
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, LogSource

__all__ = ["Meter"]


class Meter:
    """A source whose readers write down what they read."""

    def __init__(self, source: LogSource) -> None:
        self.reads: list[tuple[float, int, int]] = []
        self._source = source
        self._numbers = count(1)

    def open(self, marker: Datamarker) -> LogReader:
        """A reader with a meter."""
        return _Reader(self._source.open(marker), next(self._numbers), self.reads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class _Reader:
    def __init__(self, reader: LogReader, number: int, reads: list[tuple[float, int, int]]) -> None:
        self._reader, self._number, self._reads = reader, number, reads
        self.close = reader.close

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        segment = self._reader.read(max_bytes, wait_s)
        if segment is not None:
            self._reads.append((time.monotonic(), self._number, segment.log_bytes))
        return segment


def main() -> None:
    """See the module."""
    meters: list[Meter] = []

    def metered(*arguments: Any, **settings: Any) -> Meter:
        meters.append(Meter(open_source(*arguments, **settings)))
        return meters[-1]

    setattr(daemon, "open_source", metered)  # noqa: B010 - the daemon offers no other way in, and should not
    logging.basicConfig(level=logging.WARNING)
    try:
        daemon.run(load(sys.argv[1]), "bench", "main", "db")
    finally:
        Path(sys.argv[2]).write_text(json.dumps([read for meter in meters for read in meter.reads]))


if __name__ == "__main__":
    main()
