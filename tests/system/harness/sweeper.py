"""``python -m tests.system.harness.sweeper MARK``: kills what carries the mark when its standard input ends.

Its standard input ends with the process that started it, even after a kill. Without it the publishers of a monitor
would stay, because they outlive the monitor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from tests.support.marked import marked


def main() -> None:
    """Wait, then kill until nothing is left: what is killed may have started something just now."""
    sys.stdin.read()
    while found := marked(sys.argv[1]):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
