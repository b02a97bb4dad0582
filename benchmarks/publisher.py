"""The real publisher, on a configuration made for the benchmark. Run as ``python -m benchmarks.publisher CONFIG``."""

from __future__ import annotations

import logging
import sys

from publisher.daemon import run
from wormhole.config import load

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    run(load(sys.argv[1]), "bench", "main", "db")
