"""mysql-replication as a reader: run as ``python -m benchmarks.peers.mysql_replication``.

See :mod:`benchmarks.peers.outcome`.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

__all__ = ["main"]


def main() -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    environment = os.environ
    stream = BinLogStreamReader(
        connection_settings={
            "host": environment["PEER_HOST"],
            "port": int(environment["PEER_PORT"]),
            "user": environment["PEER_USER"],
            "passwd": environment["PEER_PASSWORD"],
        },
        server_id=(1 << 30) + os.getpid(),
        log_file=environment["PEER_FILE"],
        log_pos=4,
        resume_stream=True,
        only_events=[WriteRowsEvent],
    )
    wanted, rows, checksum, first = int(environment["PEER_ROWS"]), 0, 0, 0.0
    for event in stream:
        for row in event.rows:
            first = first or time.monotonic()
            values: dict[str, Any] = row["values"]
            rows += 1
            checksum += values["id"] + values["user"] + (values["amount"] is not None) + values["state"]
            checksum += (values["changed"] is not None) + len(values["note"]) + len(values["body"])
        if rows >= wanted:
            break
    print(json.dumps({"rows": rows, "seconds": time.monotonic() - first, "checksum": checksum}), flush=True)
    os._exit(0)  # its end is not measured


if __name__ == "__main__":
    main()
