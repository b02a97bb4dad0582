"""The rows of the table, each with what it does with the bytes of a row.

A reader is a program as :mod:`benchmarks.peers.outcome` says. Its environment: ``PEER_HOST``, ``PEER_PORT``,
``PEER_USER``, ``PEER_PASSWORD``, ``PEER_PASSWORD_FILE``, ``PEER_DATABASE``, ``PEER_PUBLICATION``, ``PEER_SLOT`` (of the
plugin pgoutput, its own), ``PEER_END`` (the LSN behind the last row), ``PEER_ROWS``, ``PEER_URL`` (for our source),
``PEER_RECVLOGICAL`` (the program) and ``PEER_LIBRARIES`` (which it needs).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cases import configuration, free_ports
from benchmarks.peers.builds import BUILDS, Commands
from benchmarks.peers.reader import Program, Reader
from benchmarks.postgres.wal import TABLE, Wal

__all__ = ["FLOOR", "OURS", "POSTGRES_BUILDS", "SECOND", "SOURCES", "Programs", "WalReader", "every_reader"]

SOURCES: Final = Path(__file__).parent
FLOOR: Final = "pg_recvlogical to /dev/null (the floor)"
OURS: Final = "ours in process, not read (LogSource alone)"
SECOND: Final = "ours, second process, values read (on_updates)"

Programs = Callable[[Wal, Path], Sequence[Program]]
"""The programs of a run, in the order in which they start; the path is an empty folder for it."""
WalReader = Reader[Programs]


def _venv(source: Path, target: Path) -> Sequence[Sequence[str]]:
    pip = [f"{target}/venv/bin/pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    return [[sys.executable, "-m", "venv", f"{target}/venv"], [*pip, "-r", f"{source}/requirements.txt"]]


POSTGRES_BUILDS: Final[dict[str, Commands]] = {"go": BUILDS["go"], "python": _venv}


def _alone(*words: str) -> Programs:
    return lambda wal, folder: [Program(words, outcome=True)]


def _second(wal: Wal, folder: Path) -> Sequence[Program]:
    (port,) = free_ports(1)
    log = f'source = "{wal.url}"\npassword_file = "{wal.server.password_file}"'
    config = configuration(folder, [port], "earliest", log=log, app=f'tables = ["{TABLE}"]')
    subscriber = (sys.executable, "-m", "benchmarks.peers.subscriber", "values", str(port))
    publisher = (sys.executable, "-m", "benchmarks.publisher", str(config))
    return [Program(subscriber, ready=True, outcome=True), Program(publisher)]


def every_reader(build: Path) -> list[WalReader]:
    """All, in the order of the table. ``build``: where those that are built are."""
    go, python = f"{build}/go/peer", (f"{build}/python/venv/bin/python", str(SOURCES / "python" / "peer.py"))
    return [
        WalReader(
            FLOOR,
            "writes each message with a call of its own, looks at none",
            _alone(sys.executable, "-m", "benchmarks.postgres.recvlogical"),
            reads_values=False,
        ),
        WalReader(
            OURS,
            "decodes, encodes, makes segments of 1 MiB",
            _alone(sys.executable, "-m", "benchmarks.postgres.log_source"),
            reads_values=False,
        ),
        WalReader(SECOND, "the same, sends over gRPC; the handler reads update.after of each, acknowledged", _second),
        WalReader(
            "pglogrepl (Go) in process, text", "parses integers, the rest stays text", _alone(go, "text"), needs=("go",)
        ),
        WalReader(
            "pglogrepl (Go) in process, typed",
            "makes pgx's type of every value of a row, as its example",
            _alone(go, "typed"),
            needs=("go",),
        ),
        WalReader(
            "psycopg2 + pypgoutput's decoders in process",
            "parses integers, the rest stays text",
            _alone(*python, "psycopg2"),
            divisor=4,
            needs=("python",),
        ),
        WalReader(
            "pypgoutput, two processes",
            "makes a pydantic model of every row",
            _alone(*python, "pypgoutput"),
            divisor=80,
            needs=("python",),
        ),
    ]
