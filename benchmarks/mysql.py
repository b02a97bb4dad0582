"""Measures the path from MariaDB's binlog to one subscriber, beside other programs that read the same files.

Each case makes one binlog and gives it, in the same run, to

* the publisher and a subscriber's batch callback that reads every value, from the log's first byte to the last
  callback,
* the same with a callback that only counts: transport alone,
* the same with ``on_arrow``, which gets the values as columns,
* ``mysql-replication`` alone, iterating the rows (a sample when it would take minutes),
* ``mariadb-binlog --read-from-remote-server --raw``: how fast the server hands the bytes out to somebody who does
  nothing with them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cases import configuration, cpu_s, free_ports, line, memory_peak_mib, program, scratch, values_read
from examples.demo.mariadb import MariaDbServer

__all__ = [
    "CASES",
    "FILL",
    "TABLE",
    "Case",
    "Peers",
    "Rate",
    "body_bytes",
    "filled_server",
    "peers",
    "publisher",
]


@dataclass(frozen=True, slots=True)
class Case:
    """Rows of about ``size`` bytes, ``per_transaction`` of them in each of ``transactions``; ``sample``: rows that the
    slow peer reads; ``received``: settings of the application, for one that receives less; ``columns``: how many it
    receives.
    """

    name: str
    size: int
    per_transaction: int
    transactions: int
    sample: int
    received: str = ""
    columns: int = 7

    @property
    def rows(self) -> int:
        """All of them."""
        return self.per_transaction * self.transactions


CASES: Final = (
    Case("100 B, 500 rows a transaction", 100, 500, 3000, 50_000),
    Case("2.5 KB, 500 rows a transaction", 2500, 500, 240, 30_000),
    Case("100 B, 1 row a transaction", 100, 1, 300_000, 30_000),
    Case("2.5 KB, 1 row a transaction", 2500, 1, 60_000, 20_000),
    Case("100 B, 500 rows; 3 columns of 6", 100, 500, 3000, 50_000, 'columns = ["user", "amount", "note"]', 4),
    Case("100 B, 500 rows; 1 column hashed", 100, 500, 3000, 50_000, 'mask = { note = "hash" }'),
)


@dataclass(frozen=True, slots=True)
class Rate:
    """What the publisher took: seconds from its start to the last callback, and from the first callback on; CPU
    seconds, peak memory (MiB).
    """

    seconds: float
    streaming_s: float
    publisher_cpu_s: float
    subscriber_cpu_s: float
    publisher_peak_mib: float


@dataclass(frozen=True, slots=True)
class Peers:
    """``replication_rows_per_s``: mysql-replication.

    ``raw_s``: seconds of the raw copy; ``log_bytes``: what it copied.
    """

    replication_rows_per_s: float
    raw_s: float
    log_bytes: int


# The table has what a real one has: numbers, a decimal, times, text. The sequence engine makes the rows inside the
# server.
TABLE: Final = """\
CREATE TABLE bench.rows_ (
id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, user INT NOT NULL, amount DECIMAL(12,2) NOT NULL,
state TINYINT NOT NULL, changed DATETIME(3) NOT NULL, note VARCHAR(40) NOT NULL,
body VARCHAR(4000) CHARACTER SET utf8mb4 NOT NULL)"""
_COLUMNS_BYTES: Final = 60  # a row takes about this without its body
FILL: Final = """\
CREATE PROCEDURE bench.fill(transactions INT, per_transaction INT, size INT)
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i < transactions DO
    INSERT INTO bench.rows_ (user, amount, state, changed, note, body)
      SELECT seq, seq / 7, seq % 5, '2026-01-02 03:04:05.678', CONCAT('note ', seq), REPEAT('x', size)
      FROM seq_1_to_1000000 LIMIT per_transaction;
    SET i = i + 1;
  END WHILE;
END"""


def body_bytes(size: int) -> int:
    """The size of the column ``body`` that makes a row about ``size`` bytes long."""
    return max(1, size - _COLUMNS_BYTES)


@contextmanager
def filled_server(case: Case) -> Iterator[MariaDbServer]:
    """A server whose newest binlog holds the case's rows and nothing else of weight."""
    options = {"innodb-flush-log-at-trx-commit": "0", "max-binlog-size": "1G", "innodb-buffer-pool-size": "1G"}
    with MariaDbServer(options=options) as server:
        server.sql("CREATE DATABASE bench", TABLE, FILL, "FLUSH BINARY LOGS")
        server.sql(f"CALL bench.fill({case.transactions}, {case.per_transaction}, {body_bytes(case.size)})")
        yield server


def publisher(server: MariaDbServer, case: Case, mode: str = "values", profile: Path | None = None) -> Rate:
    """The case's binlog through a publisher of its own to one subscriber, in a mode of :mod:`benchmarks.subscriber`."""
    with scratch() as folder:
        ports = free_ports(1)
        log = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
        key = folder / "mask.key"
        key.write_text("a secret that only benchmarks have")
        config = configuration(
            folder, ports, "earliest", log=log, publisher=f'mask_key_file = "{key}"', app=case.received
        )
        words = ("--mode", mode, "--counts", str(case.rows), "--ports", str(ports[0]))
        with program("benchmarks.subscriber", *words) as subscriber:
            line(subscriber)
            started = time.monotonic()
            with program("benchmarks.publisher", str(config), profile=profile) as process:
                result = json.loads(line(subscriber))
                values_read(result, mode, case.rows * case.columns)
                return Rate(
                    result["last"][0] - started,
                    result["seconds"][0],
                    cpu_s(process.pid),
                    result["cpu_s"],
                    memory_peak_mib(process.pid),
                )


def peers(server: MariaDbServer, case: Case) -> Peers:
    """The same binlog read by those who do less."""
    newest = server.binlogs[-1]
    environment = {
        "PEER_HOST": server.host,
        "PEER_PORT": str(server.port),
        "PEER_USER": server.user,
        "PEER_PASSWORD": server.password,
        "PEER_FILE": newest.name,
        "PEER_ROWS": str(min(case.sample, case.rows)),
    }
    with program("benchmarks.peers.mysql_replication", environment=environment) as reader:
        told = json.loads(line(reader))
        rate = told["rows"] / told["seconds"]
    with scratch() as folder:
        command = [*server.program("binlog"), "--no-defaults", f"--host={server.host}", f"--port={server.port}"]
        command += [f"--user={server.user}", f"--password={server.password}", "--protocol=TCP"]
        command += ["--read-from-remote-server", "--raw", f"--result-file={folder}/", newest.name]
        started = time.monotonic()
        subprocess.run(command, check=True)
        seconds = time.monotonic() - started
        return Peers(rate, seconds, sum(file.stat().st_size for file in folder.iterdir()))
