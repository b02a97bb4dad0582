"""A server that was killed while it wrote a large transaction: what never committed is taken back, and everything
goes on by itself."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest

from datastores.mysql.decode import events
from subscriber_sdk import Datamarker, Subscriber, Update, serve
from tests.support.databases import DatabaseServer, start_server
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from wormhole.model.errors import TransactionRolledBack

_ROW = 300_000  # bytes: more than a piece, so that a part of a transaction is delivered before its end is looked for


class App(Subscriber):
    """Keeps keys by shard, as a database would: what is not acknowledged goes with a rollback."""

    def __init__(self) -> None:
        self._keys: defaultdict[str, list[object]] = defaultdict(list)
        self._kept: defaultdict[str, int] = defaultdict(int)
        self.heard = 0
        self.causes: list[Exception] = []

    @property
    def keys(self) -> list[object]:
        return sorted(chain(*self._keys.values()))  # type: ignore[type-var]

    async def on_update(self, update: Update) -> None:
        self._keys[update.shard].append(update.key[0])
        self.heard += 1

    async def on_datamarker(self, marker: Datamarker) -> None:
        self._kept[marker.shard] = len(self._keys[marker.shard])

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.causes.append(cause)
        del self._keys[to.shard][self._kept[to.shard] :]


def rows_events(file: Path) -> list[int]:
    """Where each rows event of a binlog file begins."""
    data, at, found = file.read_bytes(), 4, []
    while at < len(data):
        if data[at + 4] in (events.WRITE_ROWS_V1, events.WRITE_ROWS_V2):
            found.append(at)
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found


def insert(*keys: int) -> list[str]:
    return ["BEGIN", *(f"INSERT INTO shop.t VALUES ({key}, REPEAT('y', {_ROW}))" for key in keys), "COMMIT"]


def cut_at(server: DatabaseServer, bytes_of_event: int) -> None:
    """Kill the server and leave of its last transaction's last but one row so many bytes."""
    (file,) = server.binlogs
    server.kill()
    os.truncate(file, rows_events(file)[-2] + bytes_of_event)
    server.start()


async def delivered(server: DatabaseServer, folder: Path, expected: list[object]) -> App:
    """A subscriber once it has what is expected: in one shard the rows after the crash may come before another's
    rollback."""
    port, app = free_port(), App()
    application = f"""[applications.app]
dataset = "shop"
start = "earliest"
subscribers = {{ s1 = "127.0.0.1:{port}" }}"""
    source = f'source = "{server.url}"\npassword_file = "{server.password_file}"'
    publisher = PublisherProcess(folder, source, application, publisher="", dataset="shard_by = { hash = 2 }")
    publisher.start()
    try:
        async with serve(
            app, application="app", id="s1", coordinator=str(publisher.config), listen=f"127.0.0.1:{port}"
        ):
            await eventually(lambda: app.keys == expected, f"{expected}, and not {app.keys}")
    finally:
        publisher.kill()
    return app


@pytest.mark.parametrize(("flavour", "bytes_of_event"), [("mariadb", 100), ("mariadb", 0), ("mysql", 100)])
def test_a_file_that_ends_inside_a_transaction(flavour: str, bytes_of_event: int, tmp_path: Path) -> None:
    """MySQL cuts its file at the last whole transaction when it starts again; MariaDB leaves it, and goes on in the
    next one."""
    with start_server(flavour) as server:
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, p LONGTEXT)", *insert(1))
        server.sql(*insert(*range(10, 16)))
        cut_at(server, bytes_of_event)
        server.sql("REPLACE INTO shop.t VALUES (99, 'after'), (98, 'after'), (97, 'after')")
        app = asyncio.run(delivered(server, tmp_path, [1, 97, 98, 99]))
        if app.heard > len(app.keys):  # a part was on its way before the log showed that nothing of it counts
            assert flavour == "mariadb"
            assert app.causes
            assert all(isinstance(cause, TransactionRolledBack) for cause in app.causes)
