"""What the monitor takes for a publisher, without one: says that it serves, and does what its test wrote into a file.

Run as a program with a publisher's options. ``<state_dir>/behaviour``: ``serve`` (the default), ``deaf`` (to SIGTERM),
``silent`` (never ready), or ``exit N`` after one line on standard error. Standard library only: it starts in a fraction
of a publisher's time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def command(file: Path, key: object) -> list[str]:
    """In the place of :func:`monitor.processes.command`."""
    return [sys.executable, "-I", "-S", __file__, "-c", str(file), "--log", str(key)]


def main() -> None:
    """Behave as told, until SIGTERM."""
    state = Path(json.loads(Path(sys.argv[2]).read_text())["publisher"]["state_dir"])
    told = state / "behaviour"
    behaviour = told.read_text().split() if told.exists() else ["serve"]
    if behaviour[0] == "exit":
        sys.stderr.write("error [needs-operator]: it is broken\n  next: mend it\n")
        raise SystemExit(int(behaviour[1]))
    # Blocked, a signal waits for sigwait below; before that nothing may end us unseen.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if behaviour[0] != "silent":
        place = state / sys.argv[4] / "publisher.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        told_by = {
            "pid": os.getpid(),
            "started": started,
            "admin": "127.0.0.1:1",
            "http": "",
            "version": "",
            "config": "",
        }
        place.with_suffix(".new").write_text(json.dumps(told_by))
        place.with_suffix(".new").replace(place)
    sys.stderr.write("serving\n")
    sys.stderr.flush()
    while True:
        signal.sigwait([signal.SIGTERM])
        if behaviour[0] != "deaf":
            return


if __name__ == "__main__":
    main()
