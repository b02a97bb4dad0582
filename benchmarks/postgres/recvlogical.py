"""``pg_recvlogical`` as a reader, into ``/dev/null``: run as ``python -m benchmarks.postgres.recvlogical``.

It looks at no message, but makes one call for each. See :mod:`benchmarks.postgres.readers`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time

from benchmarks.cases import memory_peak_mib

__all__ = ["main"]

_LOOK_MS = 100  # between two looks at its memory, which is gone when it has ended


def main() -> None:
    """See the module."""
    given = os.environ
    command = [given["PEER_RECVLOGICAL"], "--start", "--verbose", "--no-loop", "--file", os.devnull]
    command += ["--fsync-interval", "0", "--slot", given["PEER_SLOT"], "--endpos", given["PEER_END"]]
    command += ["--option", "proto_version=1", "--option", f"publication_names={given['PEER_PUBLICATION']}"]
    command += ["--host", given["PEER_HOST"], "--port", given["PEER_PORT"], "--username", given["PEER_USER"]]
    command += ["--dbname", given["PEER_DATABASE"]]
    environment = {**given, "PGPASSWORD": given["PEER_PASSWORD"], "LD_LIBRARY_PATH": given["PEER_LIBRARIES"]}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        said = b""
        while b"streaming initiated" not in said:
            line = process.stderr.readline()
            if not line:
                raise SystemExit(said.decode())
            said += line
        first = time.monotonic()
        ended = select.poll()
        ended.register(os.pidfd_open(process.pid), select.POLLIN)
        peak_mib = 0.0
        while not ended.poll(_LOOK_MS):
            peak_mib = memory_peak_mib(process.pid) or peak_mib
        seconds = time.monotonic() - first
        rest = process.stderr.read().decode()
    if process.returncode:
        raise SystemExit(rest)
    print(json.dumps({"rows": int(given["PEER_ROWS"]), "seconds": seconds, "peak_mib": peak_mib}), flush=True)
    os._exit(0)  # its end is not measured


if __name__ == "__main__":
    main()
