"""One byte that changes between server and publisher: nothing is held, no history begins, and every update comes once.

``WORMHOLE_ROUNDS``: how many bytes are changed, one in each round (a soak); ``WORMHOLE_SEED``: which.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from publisher.sources import open_source
from tests.support.databases import DatabaseServer, NewServer
from tests.support.fault_proxy import FaultProxy
from tests.support.seed import SEED
from wormhole.model.errors import Retryable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import Read

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "8"))
ROWS = 40


def source_over(proxy: FaultProxy, server: DatabaseServer, state: Path) -> LogSource:
    return open_source(
        f"{server.flavour}://{server.user}@127.0.0.1:{proxy.port}/?tls=off",
        log="log",
        state_dir=state,
        sharding=Sharding("log"),
        server_ids="",
        skip_tables=frozenset(),
        login=Login(server.password_file),
    )


def read_all(source: LogSource, start: Datamarker, end: LogPosition) -> Read:
    """As a caravan does: after an error that passes, another reader goes on at the last datamarker."""
    read, marker = Read(), start
    while marker.order < end:
        try:
            reader = source.open(marker)
        except Retryable:
            continue
        try:
            while marker.order < end and (segment := reader.read(1 << 20, 0.5)) is not None:
                assert not segment.broken
                assert segment.marker is not None
                read.add(segment)
                marker = segment.marker
        except Retryable:
            pass
        finally:
            reader.close()
    return read


def test_one_changed_byte_holds_nothing(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server(binlog_checksum="CRC32")
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
    chosen = random.Random(f"{SEED} {server.flavour}")
    with FaultProxy(server.host, server.port) as proxy:
        source = source_over(proxy, server, tmp_path / "state")
        source.start()
        try:
            start = source.latest()
            server.sql(*(f"INSERT INTO shop.t VALUES ({n}, 'row {n}')" for n in range(ROWS)))
            end = source.latest().order
            before = proxy.from_server
            expected = read_all(source, start, end).ids()
            took = proxy.from_server - before
            assert len(expected) == ROWS
            for number in range(ROUNDS):
                at = chosen.randrange(took)
                proxy.flip_mask = 1 << chosen.randrange(8)
                proxy.after(at, proxy.flip)
                what = f"seed {SEED}, round {number}: byte {at}, mask {proxy.flip_mask:#x}"
                try:
                    got = read_all(source, start, end).ids()
                except Exception as error:
                    raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
                proxy.pass_through()
                assert got == expected, what
                assert source.latest().order.incarnation == start.order.incarnation, what
        finally:
            source.stop()
