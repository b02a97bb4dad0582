"""`make quickstart-test`: follows docs/quickstart.md as its reader does, and prints the seconds of each step.

Every fenced command runs, in order, in an empty HOME and an empty folder, against a private MySQL, MariaDB, PostgreSQL
and RocksDB that are written to all the while. A step fails when a command of it does, or when what the page shows of
its output does not appear. How the page is read:

- each ``##`` heading is a step;
- the bold words that the paragraph before a fence begins with say for which datastores it is (**MySQL, MariaDB**), or
  that it goes on in a **Second terminal**; without any it is for all, in the first;
- ``sh`` is run by a shell, ``sql`` by the server's administrator; ``text`` is what the fence before it prints, ``...``
  standing for anything.

The first step, the installation, is for `scripts.newcomer`: here everything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT
from tests.support.databases import FLAVOURS, DatabaseServer, template
from tests.support.eventually import PATIENCE_S
from tests.support.marked import MARK, marked
from tests.support.pages import Process, Reader, own_port
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_server import template as postgres_template
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import WormholeError

__all__ = [
    "DATASTORES",
    "PAGE",
    "Block",
    "Follower",
    "QuickstartError",
    "Step",
    "Store",
    "follow",
    "main",
    "missing",
    "read_page",
    "store",
    "written_to",
]

PAGE: Final = ROOT / "docs" / "quickstart.md"
DATASTORES: Final = ("MySQL", "MariaDB", "PostgreSQL", "RocksDB")
SECOND: Final = "Second terminal"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LABEL: Final = re.compile(r"\*\*(.+?)\*\*")
_WRITE_EVERY_S: Final = 1.0
"""The program prints at most 50 updates a second. What was written before it starts must not hide the rows it reads."""


class QuickstartError(Exception):
    """A step of the page did not go as the page describes."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fence. ``only``: the datastores that it is for; ``second``: whether it belongs to the second terminal."""

    language: str
    code: str
    only: frozenset[str]
    second: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What stands under one heading."""

    title: str
    blocks: tuple[Block, ...]


def read_page(text: str) -> list[Step]:
    """The steps that have something to run. Raises :class:`QuickstartError` for a fence that would be passed over."""
    steps = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if blocks := tuple(_blocks(body)):
            steps.append(Step(title, blocks))
    if sum(len(step.blocks) for step in steps) != len(_FENCE.findall(text)):
        raise QuickstartError("a fence stands before the first heading: it would not be run")
    return steps


def _blocks(body: str) -> Iterator[Block]:
    for fence in _FENCE.finditer(body):
        language, code = fence.groups()
        if language not in ("sh", "sql", "text"):
            raise QuickstartError(f"it is not known how to run ```{language or '(nothing)'}: {code.splitlines()[0]}")
        before = body[: fence.start()].strip().rpartition("\n\n")[2]
        label = _LABEL.match(before)
        words = {word.strip() for word in label[1].split(",")} if label else set()
        yield Block(
            language, code.strip(), frozenset(words & set(DATASTORES)) or frozenset(DATASTORES), SECOND in words
        )


def missing(shown: str, printed: str) -> str:
    """The first line of what the page shows that was not printed, in this order; empty when all of it was.

    ``...`` is anything.
    """
    left = printed.splitlines()
    for line in shown.splitlines():
        wanted = re.compile(".*".join(map(re.escape, line.strip().split("..."))))
        while left and not wanted.search(left[0]):
            left.pop(0)
        if not left:
            return line
        left.pop(0)
    return ""


# -- the datastores


@dataclass(frozen=True, slots=True)
class Store:
    """A private datastore. ``named``: the text by which the page calls it, and what it is; ``write``: one change more;
    ``sql``: as its administrator.
    """

    named: tuple[str, str]
    write: Callable[[int], object]
    sql: Callable[[str], object]


@contextmanager
def store(kind: str, folder: Path) -> Iterator[Store]:
    """A private datastore that is set up as most are, with a few rows in ``shop.users``."""
    if kind == "RocksDB":
        rocks = RocksWriter(folder / "shop")
        rocks.put(b"user:ada", b"{}")  # what the page reads first is not empty
        try:
            yield Store(
                ("/var/lib/shop", str(folder / "shop")), lambda n: rocks.put(b"user:%d" % (n % 100), b"{}"), _no_sql
            )
        finally:
            rocks.exit()
        return
    if kind == "PostgreSQL":
        with PostgresServer(template=postgres_template()) as postgres:
            postgres.sql(f"DROP ROLE {postgres.user}", "CREATE DATABASE shop")  # the page makes its own account
            postgres.sql(
                "CREATE TABLE users (id int PRIMARY KEY, name text, visits int DEFAULT 0)",
                *(f"INSERT INTO users VALUES ({n}, 'Eve')" for n in range(1, 11)),
                database="shop",
            )
            visit = "UPDATE users SET visits = visits + 1 WHERE id = {}"
            yield Store(
                ("db1:5432", f"{postgres.host}:{postgres.port}"),
                lambda n: postgres.sql(visit.format(n % 9 + 2), database="shop"),
                lambda text: postgres.sql(*_statements(text), database="shop"),
            )
        return
    # As servers are that were not set up for tailing.
    no_gtids = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    usual = {"binlog-row-metadata": "MINIMAL"} | (no_gtids if kind == "MySQL" else {"binlog-format": "MIXED"})
    flavour = kind.lower()
    with FLAVOURS[flavour](options=usual, template=template(flavour)) as server:
        server.sql(
            f"DROP USER '{server.user}'@'{server.host}'",  # the page makes its own
            "CREATE DATABASE shop",
            "CREATE TABLE shop.users (id INT PRIMARY KEY, name VARCHAR(20), visits INT DEFAULT 0)",
            *(f"INSERT INTO shop.users (id, name) VALUES ({n}, 'Eve')" for n in range(1, 11)),
        )
        yield Store(
            ("db1:3306", f"{server.host}:{server.port}"), lambda n: _visit(server, n), lambda text: _run(server, text)
        )


def _visit(server: DatabaseServer, number: int) -> None:
    # A connection of its own each time: one that is open keeps the settings that it began with.
    server.sql(f"UPDATE shop.users SET visits = visits + 1 WHERE id = {number % 9 + 2}")


def _run(server: DatabaseServer, text: str) -> None:
    server.sql(*_statements(text))


def _statements(text: str) -> list[str]:
    return list(filter(None, map(str.strip, re.sub(r"--.*", "", text).split(";"))))


def _no_sql(text: str) -> None:
    raise QuickstartError(f"a RocksDB understands no SQL: {text}")


@contextmanager
def written_to(store: Store) -> Iterator[None]:
    """Commit changes all the while. Raises :class:`QuickstartError` when the writer failed."""
    ended, failed = threading.Event(), []

    def write() -> None:
        number = 0
        try:
            while not ended.wait(_WRITE_EVERY_S):
                store.write(number)
                number += 1
        except Exception as error:  # noqa: BLE001 - told where the page is followed
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise QuickstartError(f"the writer failed: {failed[0]}")


# -- following


def follow(kind: str, steps: Sequence[Step]) -> dict[str, float]:
    """Seconds of each step with one kind of datastore. Raises :class:`QuickstartError` that names step and command."""
    mark = uuid.uuid4().hex
    root = Path(tempfile.mkdtemp(prefix="wormhole-quickstart-"))
    try:
        folder, home = root / "work", root / "home"
        folder.mkdir()
        home.mkdir()
        with ExitStack() as stack:
            written = stack.enter_context(store(kind, root))
            stack.enter_context(written_to(written))
            follower = Follower(Reader(folder, home, {MARK: mark}), written, stack.enter_context(ExitStack()))
            taken = {}
            for step in steps:
                began = time.monotonic()
                try:
                    for block in step.blocks:
                        if kind in block.only:
                            follower.follow(block)
                except (QuickstartError, AssertionError) as error:
                    raise QuickstartError(f"{kind}, {step.title}: {error}") from error
                taken[step.title] = time.monotonic() - began
        if left := marked(mark):
            raise QuickstartError(f"{kind}: still running after the last step: {', '.join(left.values())}")
        return taken
    finally:
        # What a step that failed had started in the background.
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)


class Follower:
    """Runs one fence after the other. ``terminal`` ends what runs in the second terminal."""

    def __init__(self, reader: Reader, store: Store, terminal: ExitStack) -> None:
        self._reader = reader
        self._store = store
        self._terminal = terminal
        self._second: Process | None = None
        self._printed = ""

    def follow(self, block: Block) -> None:
        code = block.code.replace(*self._store.named)
        match block.language:
            case "sql":
                self._store.sql(code)
            case "sh" if block.second:
                self._second = self._terminal.enter_context(self._reader.running("sh", "-c", f"exec {code}"))
            case "sh":
                self._first(code)
            case _ if block.second:
                self._second_says(code)
            case _:
                if line := missing(code, self._printed):
                    raise QuickstartError(f"the page shows {line!r}, but printed was:\n{self._printed}")

    def _first(self, code: str) -> None:
        if "wormholectl down" in code:
            self._terminal.close()  # the page stops it so: Ctrl-C
        self._printed = self._reader.shell(code)
        if "wormholectl init" in code:
            own_port(self._reader.folder)

    def _second_says(self, shown: str) -> None:
        if self._second is None:
            raise QuickstartError("nothing runs in the second terminal")
        too_late = threading.Timer(PATIENCE_S, os.kill, (self._second.pid, signal.SIGKILL))
        too_late.start()
        try:
            for line in shown.splitlines():
                self._second.says(line.strip().split("...")[0])
        finally:
            too_late.cancel()


def main(arguments: Sequence[str]) -> int:
    """Follow the page with each datastore; prints a table. Returns 0 when every step went well."""
    parser = argparse.ArgumentParser(prog="make quickstart-test", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("datastores", nargs="*", metavar="DATASTORE", help=f"some of {', '.join(DATASTORES)} (all)")
    chosen = parser.parse_args(arguments).datastores or DATASTORES
    if unknown := set(chosen) - set(DATASTORES):
        parser.error(f"{', '.join(sorted(unknown))}: choose among {', '.join(DATASTORES)}")
    taken: dict[str, dict[str, float]] = {}
    try:
        _install, *steps = read_page(PAGE.read_text())
        for kind in chosen:
            print(f"following docs/quickstart.md with {kind}", flush=True)
            taken[kind] = follow(kind, steps)
    except (QuickstartError, WormholeError) as error:
        print(f"make quickstart-test: {error}", file=sys.stderr)
        return 1
    width = max(len(step.title) for step in steps)
    print(f"\n{'seconds':<{width}}" + "".join(f"{kind:>9}" for kind in taken))
    for step in steps:
        print(f"{step.title:<{width}}" + "".join(f"{times[step.title]:9.1f}" for times in taken.values()))
    print(f"{'in all':<{width}}" + "".join(f"{sum(times.values()):9.1f}" for times in taken.values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
