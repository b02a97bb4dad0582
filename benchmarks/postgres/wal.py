"""The WAL that every reader reads: a PostgreSQL server, and slots behind which this many rows are left.

A slot moves on when it is read. So each run has copies of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from benchmarks.mysql import body_bytes
from benchmarks.peers.binlog import Shape
from benchmarks.peers.outcome import Expected
from examples.demo.postgres_server import PostgresServer
from tests.support.eventually import until

__all__ = ["DATABASE", "PUBLICATION", "SHAPES", "TABLE", "Place", "Wal", "filled", "prepare"]

DATABASE: Final = "bench"
PUBLICATION: Final = "bench"
TABLE: Final = "public.rows_"
_RUN: Final = "run"

SHAPES: Final = (
    Shape("S1", 100, 500, 200_000),
    Shape("S2", 2500, 500, 40_000),
    Shape("S3", 100, 1, 75_000),
)

# The table of the binlog's benchmark. A value of 2.5 KB stays in its row as it is: compressed, this text would be gone.
_TABLE: Final = f"""\
CREATE TABLE {TABLE} (
id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "user" int NOT NULL, amount numeric(12, 2) NOT NULL,
state smallint NOT NULL, changed timestamp(3) NOT NULL, note varchar(40) NOT NULL,
body varchar(4000) NOT NULL)"""
_FILL: Final = f"""\
CREATE PROCEDURE fill(transactions int, per_transaction int, size int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. transactions LOOP
    INSERT INTO {TABLE} ("user", amount, state, changed, note, body)
      SELECT n, n / 7.0, n % 5, '2026-01-02 03:04:05.678', 'note ' || n, repeat('x', size)
      FROM generate_series(1, per_transaction) n;
    COMMIT;
  END LOOP;
END $$"""
_OPTIONS: Final = {
    "shared_buffers": "512MB",
    "max_wal_size": "16GB",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "checkpoint_timeout": "1h",
}


@dataclass(frozen=True, slots=True)
class Place:
    """``slot``: with as many rows behind it as ``expected`` has, up to the LSN ``end``."""

    slot: str
    end: str
    expected: Expected


@dataclass(frozen=True, slots=True)
class Wal:
    """A server, and the places at which a reader may begin, by how many rows are left."""

    server: PostgresServer
    places: dict[int, Place]

    @property
    def url(self) -> str:
        """The source whose slots :meth:`slots` makes."""
        return f"{self.server.url(DATABASE)}?slot={_RUN}&publication={PUBLICATION}"

    @contextmanager
    def slots(self, place: Place) -> Iterator[None]:
        """The slots ``run_held`` and ``run_lead`` of one run, both at the place."""
        names = (f"{_RUN}_held", f"{_RUN}_lead")
        for name in names:
            copied = f"SELECT pg_copy_logical_replication_slot('{place.slot}', '{name}')"
            self.server.sql(copied, database=DATABASE)
        try:
            yield
        finally:
            until(self._none_is_read, "a walsender does not end")
            for name in names:
                self.server.sql(f"SELECT pg_drop_replication_slot('{name}')")

    def _none_is_read(self) -> bool:
        return not self.server.sql("SELECT 1 FROM pg_replication_slots WHERE active")

    def environment(self, place: Place) -> dict[str, str]:
        """What a reader is given; see :mod:`benchmarks.postgres.readers`."""
        server = self.server
        return {
            "PEER_HOST": server.host,
            "PEER_PORT": str(server.port),
            "PEER_USER": server.user,
            "PEER_PASSWORD": server.password,
            "PEER_PASSWORD_FILE": str(server.password_file),
            "PEER_DATABASE": DATABASE,
            "PEER_PUBLICATION": PUBLICATION,
            "PEER_SLOT": f"{_RUN}_lead",
            "PEER_END": place.end,
            "PEER_ROWS": str(place.expected.rows),
            "PEER_URL": self.url,
            "PEER_RECVLOGICAL": server.program("pg_recvlogical")[0],
            "PEER_LIBRARIES": server.environment["LD_LIBRARY_PATH"],
        }


def prepare(server: PostgresServer) -> Callable[..., list[tuple[object, ...]]]:
    """Make the database with its table, its publication and the procedure ``fill``. Returns what runs SQL there."""
    server.sql(f"CREATE DATABASE {DATABASE}")
    sql = partial(server.sql, database=DATABASE)
    plain = f"ALTER TABLE {TABLE} ALTER body SET STORAGE PLAIN"
    sql(_TABLE, plain, _FILL, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}")
    return sql


@contextmanager
def filled(shape: Shape, left: Sequence[int]) -> Iterator[Wal]:
    """A server whose WAL holds the shape's rows; ``left``: as for :func:`benchmarks.peers.binlog.marks`."""
    with PostgresServer(options=_OPTIONS) as server:
        sql = prepare(server)
        begun: list[tuple[int, str, object]] = []
        for more, after in pairwise([*left, 0]):
            slot = f"mark_{more}"
            sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
            begun.append((more, slot, sql(f"SELECT coalesce(max(id), 0) FROM {TABLE}")[0][0]))
            transactions = (more - after) // shape.per_transaction
            sql(f"CALL fill({transactions}, {shape.per_transaction}, {body_bytes(shape.size)})")
        # A reader that ends at an LSN needs log behind it.
        (end,) = sql("SELECT pg_current_wal_insert_lsn()")[0]
        sql("CHECKPOINT")
        places = {}
        for more, slot, last in begun:
            texts = "octet_length(note) + octet_length(body)"
            query = f'SELECT count(*), sum(id + "user" + state + {texts} + 2) FROM {TABLE} WHERE id > {last}'
            rows, checksum = sql(query)[0]
            places[more] = Place(slot, str(end), Expected(int(str(rows)), int(str(checksum))))
        yield Wal(server, places)
