"""Measures the cost of a relay while it records, and its throughput for a flow that is behind.

The rows of each shape are made once on a private server. Three measurements follow each other in one run: the log to
one subscriber without a relay, the same while a relay records it, and the same log from that relay, by a publisher that
has no other source. Latency is measured in the same way, with a writer at a steady rate.
"""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import mysql
from benchmarks.cases import BenchmarkError, configuration, cpu_s, free_ports, line, program, scratch, tell, values_read
from benchmarks.existing_rows import quantile
from benchmarks.mysql import Case, body_bytes
from benchmarks.peers.binlog import Shape
from benchmarks.postgres.wal import DATABASE, PUBLICATION, Place, Wal, filled
from benchmarks.postgres.wal import TABLE as POSTGRES_TABLE
from examples.demo.database_server import DatabaseServer
from examples.demo.mariadb import MariaDbServer
from examples.demo.postgres_server import PostgresServer
from tests.support.mysql_server import MySqlServer
from wormhole.admin.admin_service import describe
from wormhole.config import load
from wormhole.model.errors import StreamBroken

__all__ = [
    "COMPRESSIONS",
    "KINDS",
    "RATE",
    "SHAPES",
    "Delays",
    "Delivered",
    "Log",
    "Recorded",
    "delays",
    "delivered",
    "frames",
    "from_relay",
    "opened",
    "recorded",
    "smaller",
]

KINDS: Final = ("postgres", "mariadb", "mysql")
COMPRESSIONS: Final = ("zstd", "none")
SHAPES: Final = (
    Shape("S1", 100, 500, 600_000),
    Shape("S2", 2500, 500, 100_000),
    Shape("S3", 100, 1, 150_000),
)
RATE: Final = 1000
"""Writes a second, of latency."""
_OFF: Final = 'relay = "off"'
_BODY: Final = 1000
_COLUMNS: Final = 7
_SETTLE_S: Final = 1.0
_OPEN_TIMEOUT_S: Final = 60.0
_STAMPED: Final = "CREATE TABLE {} (id BIGINT PRIMARY KEY, stamp BIGINT NOT NULL, body VARCHAR(4000) NOT NULL)"


@dataclass(frozen=True, slots=True)
class Delivered:
    """From the publisher's start to the last callback, and from the first callback on; processor seconds of the
    publisher and of the server.
    """

    rows_per_s: float
    seconds: float
    publisher_cpu_s: float
    server_cpu_s: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """The same, with what the relay took on disk of ``log_bytes`` of log."""

    delivered: Delivered
    disk_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from a write's schedule to the callback."""

    p50_ms: float
    p99_ms: float


class Log(ABC):
    """A server whose log holds a shape's rows. ``mode``: the mode of its relay."""

    kind: str
    mode: str
    rows: int
    log_bytes: int

    @abstractmethod
    def source(self) -> str:
        """The lines of a configuration that name it."""

    @abstractmethod
    def server_cpu_s(self) -> float:
        """Processor seconds of its processes so far; those that ended count no more."""

    @contextmanager
    def once(self) -> Iterator[None]:
        """Around each reading of the whole log."""
        yield


class _Postgres(Log):
    kind, mode = "postgres", "hold"

    def __init__(self, wal: Wal, place: Place) -> None:
        self._wal, self._place, self.rows = wal, place, place.expected.rows
        statement = "SELECT %s::pg_lsn - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
        with wal.server.connect() as connection:
            found = connection.execute(statement, [place.end, place.slot]).fetchone()
        assert found is not None
        self.log_bytes = int(found[0])

    def source(self) -> str:
        return f'source = "{self._wal.url}"\npassword_file = "{self._wal.server.password_file}"'

    def server_cpu_s(self) -> float:
        return _family_cpu_s(self._wal.server.pid)

    @contextmanager
    def once(self) -> Iterator[None]:
        with self._wal.slots(self._place):
            yield


class _Binlog(Log):
    mode = "cache"

    def __init__(self, server: DatabaseServer, case: Case) -> None:
        self.kind, self._server, self.rows = server.flavour, server, case.rows
        self.log_bytes = server.binlogs[-1].stat().st_size

    def source(self) -> str:
        return f'source = "{self._server.url}"\npassword_file = "{self._server.password_file}"'

    def server_cpu_s(self) -> float:
        return _family_cpu_s(self._server.pid)


def _family_cpu_s(pid: int) -> float:
    """Processor seconds of a server and the processes that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = cpu_s(pid)
    for child in children:
        try:
            found += cpu_s(int(child))
        except FileNotFoundError:
            continue
    return found


@contextmanager
def opened(kind: str, shape: Shape) -> Iterator[Log]:
    """A server of the kind with the shape's rows."""
    if kind == "postgres":
        with filled(shape, [shape.rows]) as wal:
            yield _Postgres(wal, wal.places[shape.rows])
        return
    case = Case(shape.title, shape.size, shape.per_transaction, shape.rows // shape.per_transaction, 0)
    if kind == "mariadb":
        with mysql.filled_server(case) as server:
            yield _Binlog(server, case)
        return
    # The procedure reads MariaDB's sequence of this name.
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i FROM n"
    with MySqlServer(options={"innodb-flush-log-at-trx-commit": "0", "max-binlog-size": "1G"}) as server:
        server.sql("CREATE DATABASE bench", mysql.TABLE, "CREATE TABLE bench.seq_1_to_1000000 (seq INT PRIMARY KEY)")
        server.sql(f"INSERT INTO bench.seq_1_to_1000000 {numbers}", mysql.FILL, "FLUSH BINARY LOGS")
        server.sql(f"PURGE BINARY LOGS TO '{server.binlogs[-1].name}'")
        server.sql(f"CALL bench.fill({case.transactions}, {case.per_transaction}, {body_bytes(case.size)})")
        yield _Binlog(server, case)


def _config(folder: Path, ports: list[int], log: Log, relay: str, start: str = "earliest") -> Path:
    admin = f'admin_listen = "127.0.0.1:{free_ports(1)[0]}"'
    return configuration(folder, ports, start, log=f"{log.source()}\n{relay}", publisher=admin)


def _relay(log: Log, folder: Path, compression: str) -> str:
    return f'relay = "{log.mode}"\nrelay_folder = "{folder}/relay"\nrelay_compression = "{compression}"'


def delivered(
    log: Log, relay: str = 'relay = "off"', folder: Path | None = None, profile: Path | None = None
) -> Delivered:
    """The whole log to one subscriber, which reads every value, by a publisher with an empty state folder."""
    with ExitStack() as stack:
        folder = folder or stack.enter_context(scratch())
        shutil.rmtree(folder / "state", ignore_errors=True)
        stack.enter_context(log.once())
        ports = free_ports(1)
        config = _config(folder, ports, log, relay)
        words = ("--mode", "values", "--counts", str(log.rows), "--ports", str(ports[0]))
        subscriber = stack.enter_context(program("benchmarks.subscriber", *words))
        line(subscriber)
        used = log.server_cpu_s()
        started = time.monotonic()
        publisher = stack.enter_context(program("benchmarks.publisher", str(config), profile=profile))
        result: dict[str, Any] = json.loads(line(subscriber))
        server_s = log.server_cpu_s() - used
        values_read(result, "values", log.rows * _COLUMNS)
        return Delivered(log.rows / result["seconds"][0], result["last"][0] - started, cpu_s(publisher.pid), server_s)


def recorded(log: Log, folder: Path, compression: str, profile: Path | None = None) -> Recorded:
    """The whole log, while a relay in ``folder`` records it."""
    shutil.rmtree(folder / "relay", ignore_errors=True)
    found = delivered(log, _relay(log, folder, compression), folder, profile)
    size = sum(file.stat().st_size for file in (folder / "relay").iterdir())
    return Recorded(found, size, log.log_bytes)


def from_relay(log: Log, folder: Path, compression: str, profile: Path | None = None) -> Delivered:
    """The whole log from what :func:`recorded` left in ``folder``."""
    return delivered(log, _relay(log, folder, compression), folder, profile)


@contextmanager
def _stamped(kind: str) -> Iterator[tuple[PostgresServer | DatabaseServer, Log]]:
    """A server with a table whose rows say when they were due."""
    if kind == "postgres":
        with filled(Shape("S0", 100, 1, 1), [1]) as wal:
            wal.server.sql(f"DROP TABLE {POSTGRES_TABLE}", _STAMPED.format(POSTGRES_TABLE), database=DATABASE)
            wal.server.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {POSTGRES_TABLE}", database=DATABASE)
            yield wal.server, _Postgres(wal, wal.places[1])
        return
    with (MariaDbServer if kind == "mariadb" else MySqlServer)() as server:
        server.sql("CREATE DATABASE bench", _STAMPED.format("bench.rows_"))
        yield server, _Binlog(server, Case("", 1, 1, 1, 0))


@contextmanager
def delays(kind: str, seconds: float) -> Iterator[Callable[[bool], Delays]]:
    """Calling what this yields with whether there is a relay returns :class:`Delays` of this many seconds."""
    with _stamped(kind) as (server, log):
        yield lambda with_relay: _delays(server, log, seconds, with_relay=with_relay)


def _delays(server: PostgresServer | DatabaseServer, log: Log, seconds: float, *, with_relay: bool) -> Delays:
    with scratch() as folder, ExitStack() as stack:
        stack.enter_context(log.once())
        ports = free_ports(1)
        relay = _relay(log, folder, "zstd") if with_relay else _OFF
        config = _config(folder, ports, log, relay, "latest")
        live = stack.enter_context(program("benchmarks.row_subscriber", "live", str(ports[0])))
        line(live)
        stack.enter_context(program("benchmarks.publisher", str(config)))
        _await_live(config)
        writer = stack.enter_context(
            program("benchmarks.relay_writer", log.kind, str(server.port), str(RATE), str(_BODY))
        )
        line(writer)
        time.sleep(_SETTLE_S)
        tell(live, "report")
        line(live)
        began = time.monotonic_ns()
        time.sleep(seconds)
        ended = time.monotonic_ns()
        time.sleep(_SETTLE_S)
        tell(live, "report")
        found = [delay / 1e6 for due, delay in json.loads(line(live)) if began <= due <= ended]
        if len(found) < RATE * seconds * 0.9:
            raise BenchmarkError(f"{len(found)} updates came of {RATE * seconds:.0f}")
        return Delays(quantile(found, 0.5), quantile(found, 0.99))


def _await_live(config: Path) -> None:
    address = load(config).publisher.admin_listen
    until = time.monotonic() + _OPEN_TIMEOUT_S
    while time.monotonic() < until:
        time.sleep(0.1)
        try:
            if any(flow.state == "live" for flow in describe(address).flows):
                return
        except StreamBroken:
            continue
    raise BenchmarkError(f"the flow of the benchmark did not open within {_OPEN_TIMEOUT_S:g} s")


def frames(profile: Path, most: int = 6) -> list[tuple[str, float]]:
    """The functions in which a publisher's threads were on a processor most, and their share of all samples: of a
    profile in py-spy's raw form.
    """
    found: Counter[str] = Counter()
    for row in profile.read_text().splitlines():
        stack, _, count = row.rpartition(" ")
        found[stack.rpartition(";")[2]] += int(count)
    total = sum(found.values())
    return [(name, count / total) for name, count in found.most_common(most)]


def smaller(shape: Shape, part: float) -> Shape:
    """The same shape with fewer rows."""
    whole = max(1, int(shape.rows * part) // shape.per_transaction)
    return replace(shape, rows=whole * shape.per_transaction)
