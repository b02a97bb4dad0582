"""This project's log source alone, in one process: run as ``python -m benchmarks.postgres.log_source``.

It decodes, encodes and makes segments; the values are not read. See :mod:`benchmarks.postgres.readers`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.cases import memory_peak_mib
from publisher.sources import open_source
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login

__all__ = ["main"]

_SEGMENT_BYTES: Final = 1 << 20


def main() -> None:
    """See the module."""
    given = os.environ
    wanted, rows = int(given["PEER_ROWS"]), 0
    with tempfile.TemporaryDirectory() as state:
        source = open_source(
            given["PEER_URL"],
            log="db",
            state_dir=Path(state),
            sharding=Sharding("log"),
            login=Login(Path(given["PEER_PASSWORD_FILE"])),
        )
        source.start()
        begin = source.earliest()
        first = time.monotonic()
        reader = source.open(begin)
        while rows < wanted:
            segment = reader.read(_SEGMENT_BYTES, 1.0)
            if segment is not None:
                rows += sum(run.updates for run in segment.runs.values())
        seconds = time.monotonic() - first
        print(json.dumps({"rows": rows, "seconds": seconds, "peak_mib": memory_peak_mib(os.getpid())}), flush=True)
        reader.close()
        source.stop()


if __name__ == "__main__":
    main()
