"""The binlog that every peer reads: a MariaDB server, and places in its log from which this many rows are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from benchmarks.mysql import FILL, TABLE, body_bytes
from benchmarks.peers.outcome import Expected
from examples.demo.mariadb import MariaDbServer

__all__ = ["SHAPES", "WRITER", "Binlog", "Mark", "Shape", "filled", "marks"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of about ``size`` bytes, ``per_transaction`` of them together. ``rows``: N of a fast reader."""

    name: str
    size: int
    per_transaction: int
    rows: int

    @property
    def title(self) -> str:
        """For people."""
        size = f"{self.size} B" if self.size < 1000 else f"{self.size / 1000:g} KB"
        return f"{self.name}: {size} x {self.per_transaction}"


WRITER: Final = "writer"
"""An account with every right and the password of the other: Debezium locks tables, Maxwell writes its own."""

SHAPES: Final = (
    Shape("S1", 100, 500, 400_000),
    Shape("S2", 2500, 500, 80_000),
    Shape("S3", 100, 1, 200_000),
    Shape("S4", 2500, 1, 80_000),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A binlog file from whose beginning on the log holds what is ``expected``; ``gtids``: what is before it."""

    file: str
    gtids: str
    expected: Expected


@dataclass(frozen=True, slots=True)
class Binlog:
    """A server, and the places at which a reader may begin, by how many rows are left."""

    host: str
    port: int
    user: str
    password: str
    url: str
    password_file: str
    marks: dict[int, Mark]

    def environment(self, mark: Mark) -> dict[str, str]:
        """What a reader is given; see :mod:`benchmarks.peers.outcome`."""
        return {
            "PEER_HOST": self.host,
            "PEER_PORT": str(self.port),
            "PEER_USER": self.user,
            "PEER_PASSWORD": self.password,
            "PEER_WRITER": WRITER,
            "PEER_FILE": mark.file,
            "PEER_GTIDS": mark.gtids,
            "PEER_ROWS": str(mark.expected.rows),
        }


def marks(shape: Shape, divisors: Sequence[int], scale: float) -> list[int]:
    """Rows left at each mark, most first: N and 2N of every reader that takes the shape's N divided by one of
    ``divisors``. Whole transactions, and at least one.
    """
    unit = shape.per_transaction
    sizes = {max(1, int(shape.rows * scale / divisor) // unit) * unit for divisor in divisors}
    return sorted(sizes | {2 * size for size in sizes}, reverse=True)


@contextmanager
def filled(shape: Shape, left: Sequence[int]) -> Iterator[Binlog]:
    """A server whose binlog holds the shape's rows; ``left``: as for :func:`marks`. Each mark begins a file."""
    options = {"innodb-flush-log-at-trx-commit": "0", "max-binlog-size": "1G", "innodb-buffer-pool-size": "1G"}
    with MariaDbServer(options=options) as server:
        server.sql("CREATE DATABASE bench", TABLE, FILL)
        account = f"'{WRITER}'@'127.0.0.1'"
        server.sql(f"CREATE USER {account} IDENTIFIED BY '{server.password}'", f"GRANT ALL ON *.* TO {account}")
        begun: list[tuple[int, str, str, int]] = []
        for more, after in pairwise([*left, 0]):
            server.sql("FLUSH BINARY LOGS")
            gtids = str(server.sql("SELECT @@gtid_binlog_pos")[0][0])
            begun.append((more, server.binlogs[-1].name, gtids, _last_id(server)))
            transactions = (more - after) // shape.per_transaction
            server.sql(f"CALL bench.fill({transactions}, {shape.per_transaction}, {body_bytes(shape.size)})")
        found = {rows: Mark(file, gtids, _expected(server, last)) for rows, file, gtids, last in begun}
        yield Binlog(
            server.host, server.port, server.user, server.password, server.url, str(server.password_file), found
        )


def _last_id(server: MariaDbServer) -> int:
    return int(server.sql("SELECT COALESCE(MAX(id), 0) FROM bench.rows_")[0][0])


def _expected(server: MariaDbServer, after: int) -> Expected:
    integers, texts = "id + user + state", "LENGTH(note) + LENGTH(body)"
    query = f"SELECT COUNT(*), SUM({integers} + {texts} + 2) FROM bench.rows_ WHERE id > {after}"
    rows, checksum = server.sql(query)[0]
    return Expected(int(rows), int(checksum))
