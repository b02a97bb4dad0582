"""Measures a backfill of a MariaDB table during writes, beside other programs that copy the same table.

The server has one table with rows of about 100 B, and one writer makes 1,000 updates per second. One run measures:

* a publisher with a live flow and no backfill: its latency is the reference,
* the same with an application that begins with existing rows and reads their values, at the default rate and unlimited,
* three such applications at the same time: the number of rows that the server reads for them,
* ``SELECT *`` through the driver, row by row, without a publisher,
* ``mariadb-dump | mariadb`` into another database of the same server, without a publisher.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import cpu_s, free_ports, line, memory_peak_mib, program, scratch, tell
from examples.demo.mariadb import MariaDbServer
from wormhole.admin.admin_service import describe
from wormhole.config import load
from wormhole.model.errors import StreamBroken

__all__ = [
    "TABLE",
    "UNLIMITED",
    "WRITES_PER_S",
    "Backfill",
    "Copy",
    "backfill",
    "budget_mib",
    "configuration",
    "filled_server",
    "pipe",
    "quantile",
    "row_bytes",
    "select_all",
    "writing",
]

TABLE: Final = "bench.rows_"
WRITES_PER_S: Final = 1_000
UNLIMITED: Final = "100GiB/s"
MIB: Final = 1 << 20

_DEFINITION: Final = f"""\
CREATE TABLE {TABLE} (
id BIGINT UNSIGNED NOT NULL PRIMARY KEY, user INT NOT NULL, amount DECIMAL(12,2) NOT NULL, state TINYINT NOT NULL,
changed DATETIME(3) NOT NULL, note VARCHAR(40) NOT NULL, body VARCHAR(400) CHARACTER SET utf8mb4 NOT NULL,
stamp BIGINT NOT NULL)"""
_AT_ONCE: Final = 100_000
_BODY: Final = 40
_OPEN_TIMEOUT_S: Final = 60.0
_SETTLE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Backfill:
    """One publisher, with ``applications`` that begin with existing rows (0: the live flow alone).

    ``rows_per_s``: the rate of one application, from its first row to the end of its table. Processor shares are of one
    core. ``p50_ms``, ``p99_ms``: the latency of the live flow, from the scheduled write to the callback;
    ``write_p99_ms``: to the server's answer. ``peak_mib``: the memory of the publisher. ``read_per_row``: rows that the
    server read for the publisher's account, per row of the table.
    """

    applications: int
    rows_per_s: float
    seconds: float
    server_cores: float
    publisher_cores: float
    p50_ms: float
    p99_ms: float
    write_p99_ms: float
    peak_mib: float
    read_per_row: float


@dataclass(frozen=True, slots=True)
class Copy:
    """Another way to the same rows."""

    rows_per_s: float
    server_cores: float


def row_bytes(server: MariaDbServer, rows: int) -> float:
    """Bytes of values in a row, on average."""
    names = ("id", "user", "amount", "state", "changed", "note", "body", "stamp")
    total = " + ".join(f"LENGTH({name})" for name in names)
    return float(server.sql(f"SELECT AVG({total}) FROM {TABLE} WHERE id > {rows - 1000}")[0][0])


def budget_mib(config: Path) -> float:
    """What rows and changes that wait may take in the publisher."""
    loaded = load(config)
    return (loaded.datasets["bench"].existing_rows.memory + loaded.publisher.change_buffer) / MIB


def configuration(folder: Path, server: MariaDbServer, ports: Sequence[int], rate: str = "") -> Path:
    """The first application begins at the log's end, the others with existing rows, at most ``rate`` (empty: the
    default).
    """
    text = [
        "version = 1",
        "[coordinator]",
        "static = true",
        "[publisher]",
        f'state_dir = "{folder}/state"',
        f'admin_listen = "127.0.0.1:{free_ports(1)[0]}"',
        "[datasets.bench]",
        f'existing_rows = {{ rate = "{rate}" }}' if rate else "",
        "[datasets.bench.copies.main.logs.db]",
        f'source = "{server.url}"',
        f'password_file = "{server.password_file}"',
    ]
    for number, port in enumerate(ports):
        start = "existing" if number else "latest"
        text += [f"[applications.app{number}]", 'dataset = "bench"', f'start = "{start}"', f'tables = ["{TABLE}"]']
        text += [f"[applications.app{number}.subscribers]", f's = "127.0.0.1:{port}"']
    path = folder / "bench.toml"
    path.write_text("\n".join(text))
    return path


@contextmanager
def filled_server(rows: int) -> Iterator[MariaDbServer]:
    """A server with the table; the rows are not in its log."""
    options = {"innodb-buffer-pool-size": "1G", "innodb-log-file-size": "256M", "userstat": "1"}
    with MariaDbServer(options=options) as server:
        server.sql("CREATE DATABASE bench", _DEFINITION)
        for first in range(1, rows + 1, _AT_ONCE):
            last = min(rows, first + _AT_ONCE - 1)
            server.sql(
                "SET SESSION sql_log_bin = 0",
                f"INSERT INTO {TABLE} SELECT seq, seq % 100000, seq % 100000 / 7, seq % 5, '2026-01-02 03:04:05.678', "
                f"CONCAT('note ', seq), REPEAT('x', {_BODY}), 0 FROM seq_{first}_to_{last}",
                database="bench",
            )
        server.sql("SET SESSION sql_log_bin = 0", f"ANALYZE TABLE {TABLE}")
        yield server


@contextmanager
def writing(server: MariaDbServer, rows: int) -> Iterator[Callable[[], list[float]]]:
    """A writer at :data:`WRITES_PER_S`; calling what this yields returns the milliseconds from each write's schedule to
    the server's answer, since the last call.
    """
    with program("benchmarks.row_writer", str(server.port), str(rows), str(WRITES_PER_S)) as writer:
        line(writer)

        def reported() -> list[float]:
            tell(writer, "report")
            return [delay / 1e6 for delay in json.loads(line(writer))]

        yield reported


def backfill(
    server: MariaDbServer,
    rows: int,
    applications: int,
    rate: str = "",
    seconds: float = 0.0,
    profile: Path | None = None,
) -> Backfill:
    """See :class:`Backfill`. Without applications the live flow is measured for ``seconds``."""
    with scratch() as folder, ExitStack() as stack:
        ports = free_ports(1 + applications)
        config = configuration(folder, server, ports, rate)
        live = stack.enter_context(_subscriber("live", ports[:1]))
        # Several begin at one time if they are there before the publisher.
        copies = stack.enter_context(_subscriber("copies", ports[1:])) if applications > 1 else None
        written = stack.enter_context(writing(server, rows))
        read = _rows_read(server)
        publisher = stack.enter_context(program("benchmarks.publisher", str(config), profile=profile))
        if applications < 2:
            _opened(config)
            time.sleep(_SETTLE_S)  # what was written before the flow opened has arrived
        if applications == 1:
            copies = stack.enter_context(_subscriber("copies", ports[1:]))
        if copies is not None:
            line(copies)  # the first rows came
        written()
        used = cpu_s(server.pid), cpu_s(publisher.pid)
        began = time.monotonic()
        told: dict[str, Any] = {}
        if copies is not None:
            told = json.loads(line(copies))
        else:
            time.sleep(seconds)
        elapsed = time.monotonic() - began
        server_s, publisher_s = cpu_s(server.pid) - used[0], cpu_s(publisher.pid) - used[1]
        write_delays = written()
        tell(live, "report")
        end_ns = (began + elapsed) * 1e9
        delays = [delay / 1e6 for at, delay in json.loads(line(live)) if began * 1e9 <= at <= end_ns]
        took = [last - first for first, last in zip(told.get("first", ()), told.get("last", ()), strict=True)]
        return Backfill(
            applications,
            rows / statistics.median(took) if took else 0.0,
            elapsed,
            server_s / elapsed,
            publisher_s / elapsed,
            quantile(delays, 0.5),
            quantile(delays, 0.99),
            quantile(write_delays, 0.99),
            memory_peak_mib(publisher.pid),
            (_rows_read(server) - read) / rows,
        )


def select_all(server: MariaDbServer, rows: int) -> Copy:
    """Every row through the driver, unbuffered, beside the writer."""
    with writing(server, rows):
        used = cpu_s(server.pid)
        with program("benchmarks.row_select", str(server.port), TABLE) as reader:
            seconds = float(line(reader))
        return Copy(rows / seconds, (cpu_s(server.pid) - used) / seconds)


def pipe(server: MariaDbServer, rows: int) -> Copy:
    """The dump, fed to the client, beside the writer."""
    server.sql("DROP DATABASE IF EXISTS copy", "CREATE DATABASE copy", f"CREATE TABLE copy.rows_ LIKE {TABLE}")
    database, _, table = TABLE.partition(".")
    options = ["--single-transaction", "--no-create-info", "--skip-lock-tables", "--skip-add-locks"]
    with writing(server, rows):
        used, started = cpu_s(server.pid), time.monotonic()
        with subprocess.Popen([*server.command("dump"), *options, database, table], stdout=subprocess.PIPE) as dump:
            subprocess.run([*server.command("client"), "copy"], stdin=dump.stdout, check=True)
        seconds, used = time.monotonic() - started, cpu_s(server.pid) - used
    copied = server.sql("SELECT COUNT(*) FROM copy.rows_")[0][0]
    server.sql("DROP DATABASE copy", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW()")
    if dump.returncode or copied != rows:
        raise RuntimeError(f"the dump copied {copied} of {rows} rows, and ended with {dump.returncode}")
    return Copy(rows / seconds, used / seconds)


def quantile(values: Sequence[float], part: float) -> float:
    """The value that so large a part of all is below; not a number without any."""
    return sorted(values)[int(len(values) * part)] if values else math.nan


def _rows_read(server: MariaDbServer) -> int:
    """Rows that the server read for the publisher's account until now."""
    found = server.sql(f"SELECT ROWS_READ FROM information_schema.USER_STATISTICS WHERE USER = '{server.user}'")
    return int(found[0][0]) if found else 0


@contextmanager
def _subscriber(what: str, ports: Sequence[int]) -> Iterator[subprocess.Popen[str]]:
    with program("benchmarks.row_subscriber", what, *map(str, ports)) as process:
        line(process)
        yield process


def _opened(config: Path) -> None:
    """Wait until the first flow is live. Raises ``RuntimeError`` when that takes too long."""
    address = load(config).publisher.admin_listen
    until = time.monotonic() + _OPEN_TIMEOUT_S
    while time.monotonic() < until:
        time.sleep(0.1)
        try:
            if any(flow.flow == "app0/db" and flow.state == "live" for flow in describe(address).flows):
                return
        except StreamBroken:
            continue
    raise RuntimeError(f"the live flow of the benchmark did not open within {_OPEN_TIMEOUT_S:g} s")
