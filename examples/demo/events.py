"""What the demo's processes tell their owner: one JSON object a line on standard output; and how they log."""

from __future__ import annotations

import json
import sys
import time

from wormhole.host.logs import configure

__all__ = ["log_to_stderr", "tell"]


def tell(event: str, **fields: object) -> None:
    """Tell ``event`` now; ``at_ns`` is the monotonic time. One ``write``, so that lines of threads do not mix."""
    sys.stdout.write(json.dumps({"event": event, "at_ns": time.monotonic_ns(), **fields}) + "\n")
    sys.stdout.flush()


def log_to_stderr() -> None:
    """Log like the publisher does; the owner keeps every line that is no event in the process's log file."""
    configure(json=False)
