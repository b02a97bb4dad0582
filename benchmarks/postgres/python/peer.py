"""PostgreSQL readers in Python, which this project does not depend on: run as ``python peer.py pypgoutput|psycopg2``.

``pypgoutput``: the package's own reader, two processes. ``psycopg2``: its decoders behind psycopg2's replication
cursor, in one process; integers are parsed, the rest stays text. See :mod:`benchmarks.postgres.readers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
from pypgoutput import decoders, reader


class Outcome:
    def __init__(self) -> None:
        self.wanted = int(os.environ["PEER_ROWS"])
        self.rows = self.checksum = 0
        self.first = 0.0

    def took(self, row: int) -> None:
        self.first = self.first or time.monotonic()
        self.rows += 1
        self.checksum += row

    def print(self, *processes: int) -> None:
        seconds = time.monotonic() - self.first
        peak = sum(map(peak_mib, (os.getpid(), *processes)))
        told = {"rows": self.rows, "seconds": seconds, "checksum": self.checksum, "peak_mib": peak}
        print(json.dumps(told), flush=True)


def peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
    return peak


def login() -> dict[str, str]:
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "DATABASE"}
    return {name: os.environ[f"PEER_{given}"] for name, given in names.items()}


def by_pypgoutput(done: Outcome) -> None:
    with contextlib.redirect_stdout(sys.stderr):  # it prints
        given = os.environ
        log = reader.LogicalReplicationReader(given["PEER_PUBLICATION"], given["PEER_SLOT"], **login())
        for event in log:
            row: Any = event.after
            value = row["id"] + row["user"] + row["state"] + (row["amount"] is not None) + (row["changed"] is not None)
            done.took(value + len(row["note"]) + len(row["body"]))
            if done.rows == done.wanted:
                break
    done.print(log.extractor.pid)
    log.stop()


def by_psycopg2(done: Outcome) -> None:
    def take(message: Any) -> None:
        payload = message.payload
        if payload[:1] != b"I":
            return
        values = [column.col_data for column in decoders.Insert(payload).new_tuple.column_data]
        number, user, amount, state, changed, note, body = values
        integers = int(number) + int(user) + int(state)
        done.took(integers + (amount is not None) + (changed is not None) + len(note) + len(body))
        if done.rows == done.wanted:
            raise psycopg2.extras.StopReplication

    connection = psycopg2.connect(**login(), connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = connection.cursor()
    options = {"proto_version": "1", "publication_names": os.environ["PEER_PUBLICATION"]}
    cursor.start_replication(slot_name=os.environ["PEER_SLOT"], decode=False, options=options)
    with contextlib.suppress(psycopg2.extras.StopReplication):
        cursor.consume_stream(take)
    done.print()
    os._exit(0)  # its end is not measured


if __name__ == "__main__":
    {"pypgoutput": by_pypgoutput, "psycopg2": by_psycopg2}[sys.argv[1]](Outcome())
