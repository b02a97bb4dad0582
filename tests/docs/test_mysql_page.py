"""Starting from a dump as docs/mysql.md says it: what the dump has and what comes after it are together everything,
and nothing twice."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.databases import DatabaseServer, NewServer
from tests.support.eventually import PATIENCE_S
from tests.support.pages import Page, Reader
from tests.support.ports import free_port

_DUMPED = re.compile(r"\((\d+),'Ada'\)")
_TAILED = re.compile(r"insert\s+shop\.users\s+(\d+)")
_PROGRAM = """\
from subscriber_sdk import Subscriber, run


class Printing(Subscriber):
    def on_update(self, update):
        print(update.op.value, update.table, update.key[0], flush=True)


run(Printing(), application="cache", id="cache-1", coordinator="shop.toml")
"""


@pytest.fixture
def server(new_server: NewServer) -> DatabaseServer:
    server = new_server()
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.users (id INT PRIMARY KEY, name VARCHAR(20))")
    server.sql(*(f"INSERT INTO shop.users VALUES ({n}, 'Ada')" for n in range(100)))
    return server


@pytest.fixture
def page(server: DatabaseServer, tmp_path: Path) -> Page:
    here = f"wormhole@{server.host}:{server.port}"
    (tmp_path / "db1.password").write_text(server.password)
    (tmp_path / "db1.password").chmod(0o600)
    return Page(
        "docs/mysql.md",
        {
            "wormhole@db1:3306": here,
            "/var/lib/wormhole": str(tmp_path / "state"),
            "127.0.0.1:7400": f"127.0.0.1:{free_port()}",
        },
    )


@pytest.fixture
def reader(server: DatabaseServer, tmp_path: Path) -> Reader:
    """Whose ``mysqldump`` or ``mariadb-dump`` is the server's own and finds it."""
    reader = Reader(tmp_path)
    name = "mysqldump" if server.flavour == "mysql" else "mariadb-dump"
    program = tmp_path / "bin" / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(server.command("dump"))} "$@"\n')
    program.chmod(0o755)
    return reader


@contextmanager
def writing(server: DatabaseServer, first: int) -> Iterator[tuple[list[int], threading.Semaphore]]:
    """An application that goes on inserting; the ids that are committed, and a semaphore that is released with each."""
    ids: list[int] = []
    ended, done = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        connection = server.connect()
        with connection, connection.cursor() as cursor:
            number = first
            while not ended.is_set():
                cursor.execute("INSERT INTO shop.users VALUES (%s, 'Ada')", (number,))
                ids.append(number)
                done.release()
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield ids, done
    finally:
        ended.set()
        thread.join()


def recipe(page: Page, server: DatabaseServer) -> tuple[str, str]:
    """What makes the dump and finds its place, and what reads on."""
    word = "mysqldump " if server.flavour == "mysql" else "mariadb-dump "
    (block,) = [block for block in page.blocks("sh") if block.startswith(word)]
    *dump, tail = block.splitlines()
    assert tail.startswith("wormholectl tail ")
    return "\n".join(dump), tail


def test_a_dump_and_what_is_tailed_from_it_are_everything_once(
    server: DatabaseServer, page: Page, reader: Reader, tmp_path: Path
) -> None:
    dump, tail = recipe(page, server)
    with writing(server, 100) as (committed, done):
        gtids = reader.shell(f'{dump}\nprintf %s "$gtids"').splitlines()[-1]
        for _ in range(len(committed) + 50):  # and some after the dump
            assert done.acquire(timeout=PATIENCE_S)
    printed = reader.shell(f"gtids={shlex.quote(gtids)}\n{tail}")
    dumped = [int(number) for number in _DUMPED.findall((tmp_path / "shop.sql").read_text())]
    tailed = [int(number) for number in _TAILED.findall(printed)]
    assert len(dumped) >= 100
    assert len(tailed) >= 50
    assert dumped + tailed == [*range(100), *committed]


def test_an_application_starts_from_a_dump(server: DatabaseServer, page: Page, reader: Reader, tmp_path: Path) -> None:
    dump, _ = recipe(page, server)
    gtids = reader.shell(f'{dump}\nprintf %s "$gtids"').splitlines()[-1]
    server.sql(
        "INSERT INTO shop.users VALUES (100, 'Eve')",
        "UPDATE shop.users SET name = 'Eve' WHERE id = 1",
        "DELETE FROM shop.users WHERE id = 2",
    )
    (configuration,) = page.blocks("toml")
    assert configuration.count('start = "latest"') == 1
    (tmp_path / "shop.toml").write_text(configuration.replace('"latest"', f'"{gtids}"'))
    (tmp_path / "cache.py").write_text(_PROGRAM)
    with (
        reader.running(sys.executable, "cache.py") as application,
        reader.running("sh", "-c", "exec wormholectl publisher run -c shop.toml"),
    ):
        application.says("delete shop.users 2")
        assert application.printed == ["insert shop.users 100\n", "update shop.users 1\n", "delete shop.users 2\n"]
