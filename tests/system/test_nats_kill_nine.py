"""A stream of NATS holds what a database committed, each update once, those of a row in order, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import DatabaseServer, start_server
from tests.support.eventually import until
from tests.support.nats_server import NatsServer, stored, stored_count
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.system.harness.programs import Command
from tests.system.test_torn_binlog import cut_at, insert

ROWS = 10
FAULTS = ("sink", "nats", "sink and nats", "publisher and nats")
APPLICATION = """
[applications.changes]
dataset = "shop"
start = "earliest"
subscribers = {{ one = "127.0.0.1:{port}" }}

[sinks.changes]
url = "{url}"
"""


class Writer(threading.Thread):
    """Changes rows until it is stopped. Every third transaction is rolled back. ``committed``: the values that each row
    had, in order.
    """

    def __init__(self, server: DatabaseServer) -> None:
        super().__init__()
        self._server = server
        self._stopped = threading.Event()
        self.committed: defaultdict[int, list[str]] = defaultdict(list)

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            keys = {number % ROWS, number * 7 % ROWS}
            changes = [f"UPDATE shop.t SET p = '{number}' WHERE id = {key}" for key in keys]
            self._server.sql("BEGIN", *changes, "COMMIT" if number % 3 else "ROLLBACK")
            for key in keys if number % 3 else ():
                self.committed[key].append(str(number))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.fixture
def database() -> Iterator[DatabaseServer]:
    """A server with ten rows, which ended in the middle of a large transaction and left a part of it in its log."""
    with start_server("mariadb") as server:
        rows = ", ".join(f"({key}, '0')" for key in range(ROWS))
        server.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, p LONGTEXT)",
            f"INSERT INTO shop.t VALUES {rows}",
            *insert(*range(100, 106)),
        )
        cut_at(server, 100)
        yield server


@pytest.mark.parametrize("atomic", [True, False])
def test_the_stream_holds_each_update_once_and_in_order(
    database: DatabaseServer, tmp_path: Path, atomic: bool, say: Callable[[str], None]
) -> None:
    writer = Writer(database)
    with NatsServer() as nats:
        nats.make_stream(name="changes", subjects=["changes.>"], allow_atomic=atomic)
        source = f'source = "{database.url}"\npassword_file = "{database.password_file}"'
        application = APPLICATION.format(port=free_port(), url=nats.url)
        publisher = PublisherProcess(tmp_path, source, application, dataset="shard_by = { hash = 2 }")
        sink = Command("sink", tmp_path, "sink", "run", "changes", "-c", str(publisher.config))

        def count() -> int:
            return asyncio.run(stored_count(nats, "changes"))

        def documents() -> list[dict[str, Any]]:
            return [json.loads(message.data or b"") for message in asyncio.run(stored(nats, "changes"))]

        def story() -> str:
            return f"{publisher.tail()}\n{sink.tail()}"

        try:
            sink.start()
            publisher.start()
            writer.start()
            for fault in FAULTS:
                enough = count() + 20
                until(lambda enough=enough: count() > enough, story)  # type: ignore[misc]
                say(f"  kill {fault}")
                killed: dict[str, Command | NatsServer] = {"sink": sink, "nats": nats, "publisher": publisher}
                for name in fault.split(" and "):
                    killed[name].kill()
                for name in reversed(fault.split(" and ")):
                    killed[name].start()
            writer.stop()
            committed = ROWS + sum(map(len, writer.committed.values()))
            until(lambda: count() >= committed, story)
            assert sink.stop() == 0, sink.tail()
            found: defaultdict[int, list[str]] = defaultdict(list)
            for document in documents():
                found[document["key"][0]].append(document["after"]["p"])
            assert found == {key: ["0", *writer.committed[key]] for key in range(ROWS)}
        finally:
            writer.stop()
            sink.kill()
            publisher.kill()
