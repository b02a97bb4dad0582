"""The rows of the table, each with what it does with the bytes of a row."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cases import configuration, free_ports
from benchmarks.peers.binlog import WRITER, Binlog, Mark
from benchmarks.peers.reader import BinlogReader, Program, Programs

__all__ = ["DEBEZIUM_JSON", "GO_JSON", "OURS", "RAW", "TRANSPORT", "every_reader"]

OURS: Final = "ours, second process, values read (on_updates)"
TRANSPORT: Final = "ours, transport alone (a count)"
RAW: Final = "raw copy in large pieces (the floor)"
_OF_JVM: Final = 2
"""A JVM reads this many times the rows of the others, so that most are read after its compiler is done."""

GO_JSON: Final = "go-mysql + JSON over TCP to a second process"
DEBEZIUM_JSON: Final = "Debezium 3.5 embedded + JSON to a second process"


def _python(*words: str, **more: bool) -> Program:
    return Program((sys.executable, "-m", *words), **more)


def _ours(kind: str) -> Programs:
    def programs(binlog: Binlog, mark: Mark, folder: Path) -> Sequence[Program]:
        (port,) = free_ports(1)
        log = f'source = "{binlog.url}"\npassword_file = "{binlog.password_file}"'
        config = configuration(folder, [port], f"{mark.file}:4", log=log, app='tables = ["bench.rows_"]')
        subscriber = _python("benchmarks.peers.subscriber", kind, str(port), ready=True, outcome=True)
        return [subscriber, _python("benchmarks.publisher", str(config))]

    return programs


def _alone(*words: str) -> Programs:
    return lambda binlog, mark, folder: [Program(words, outcome=True)]


def _go_json(peer: str) -> Programs:
    def programs(binlog: Binlog, mark: Mark, folder: Path) -> Sequence[Program]:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        return [Program((peer, "receive", address), ready=True, outcome=True), Program((peer, "send", address))]

    return programs


def _to_go(peer: str, *words: str) -> Programs:
    return lambda binlog, mark, folder: [Program(words, piped=True), Program((peer, "receive", "-"), outcome=True)]


def _maxwell(peer: str, lib: str) -> Programs:
    def programs(binlog: Binlog, mark: Mark, folder: Path) -> Sequence[Program]:
        words = ["java", "-cp", lib, "com.zendesk.maxwell.Maxwell", "--producer=stdout", "--log_level=ERROR"]
        words += [f"--host={binlog.host}", f"--port={binlog.port}", f"--user={WRITER}", f"--password={binlog.password}"]
        words += [f"--init_position={mark.file}:4:0", "--filter=exclude: *.*, include: bench.rows_"]
        words += [f"--schema_database=maxwell_{folder.name[-8:].replace('-', '_')}"]
        return _to_go(peer, *words)(binlog, mark, folder)

    return programs


def every_reader(build: Path) -> list[BinlogReader]:
    """All, in the order of the table. ``build``: where the readers of other languages are."""
    go = f"{build}/go/peer"

    def java(name: str) -> str:
        return f"{build}/{name}/lib/*:{build}/{name}/classes"

    return [
        BinlogReader(
            RAW,
            "receives up to 1 MiB at once, writes it to /dev/null",
            _alone(sys.executable, "-m", "benchmarks.peers.raw_copy"),
            reads_values=False,
        ),
        BinlogReader(
            OURS,
            "decodes, encodes, sends over gRPC; the handler reads update.after of each, acknowledged",
            _ours("values"),
        ),
        BinlogReader(TRANSPORT, "the same, and the handler calls len(batch)", _ours("transport"), reads_values=False),
        BinlogReader("go-mysql in process", "decodes all values of a row", _alone(go, "read"), needs=("go",)),
        BinlogReader(
            GO_JSON,
            "decodes, makes a line of JSON; the second parses it and reads all values",
            _go_json(go),
            needs=("go",),
        ),
        BinlogReader(
            "osheroff connector (Java) in process",
            "decodes all values of a row",
            _alone("java", "-cp", java("osheroff"), "Osheroff"),
            needs=("osheroff",),
        ),
        BinlogReader(
            "mysql_async (Rust) in process",
            "decodes all values of a row",
            _alone(f"{build}/rust/release/wormhole-peers"),
            needs=("rust",),
        ),
        BinlogReader(
            "Debezium 3.5 embedded in process",
            "makes a Connect record with its schema; the handler reads all values",
            _alone("java", "-cp", java("debezium"), "Debezium", "read"),
            divisor=_OF_JVM,
            needs=("debezium",),
        ),
        BinlogReader(
            DEBEZIUM_JSON,
            "makes JSON without schemas; the second (Go) parses it and reads all values",
            _to_go(go, "java", "-cp", java("debezium"), "Debezium", "json"),
            divisor=_OF_JVM,
            needs=("debezium", "go"),
        ),
        BinlogReader(
            "Maxwell 1.22 stdout to a second process",
            "makes JSON; the second (Go) parses it and reads all values",
            _maxwell(go, java("maxwell")),
            divisor=_OF_JVM,
            needs=("maxwell", "go"),
        ),
        BinlogReader(
            "mysql-replication in process",
            "decodes all values of a row into a dict",
            _alone(sys.executable, "-m", "benchmarks.peers.mysql_replication"),
            divisor=16,
        ),
    ]
