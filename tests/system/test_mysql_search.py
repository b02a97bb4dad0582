"""A search for a loss that nobody reports: random orders of what happens to a server and its copies, and of publishers
that come and go.

Each row has a number of its own, and a copy's table contains what its own history committed: whatever is not reported
must come to exactly that, and what was delivered must be in it. Where nothing happened that a publisher could not see
through, nothing may be reported.

``WORMHOLE_ROUNDS``: how many orders are tried (a soak); ``WORMHOLE_SEED``: where they begin.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from publisher.sources import open_source
from tests.support.databases import DatabaseServer, NewServer, purge
from tests.support.eventually import PATIENCE_S
from tests.support.fault_proxy import FaultProxy
from tests.support.replicas import REPLICA, promote, replicate, wait_for_rows
from tests.support.seed import SEED
from wormhole.model.errors import Diverged, PositionError, PositionPurged, Retryable
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import Read

T = TypeVar("T")

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "1"))
STEPS = 14 if "WORMHOLE_ROUNDS" in os.environ else 6
FLAVOURS = ["mariadb", "mysql"] if "WORMHOLE_ROUNDS" in os.environ else ["mariadb"]
"""Both in a soak: a MySQL takes three times as long to come back."""


class Search:
    """A primary, its replica, the one that is served, and an application that acknowledges now and then.

    ``acknowledged``: rows that the datamarker covers; ``delivered``: all that came. ``excused``: something happened
    since the last report that may, or has to be, reported. ``forked``: the served history gives GTIDs again that the
    other copy has.
    """

    def __init__(self, first: DatabaseServer, second: DatabaseServer, folder: Path, chosen: random.Random) -> None:
        self.first, self.second, self.served = first, second, first
        self.folder, self.chosen = folder, chosen
        self.row = 0
        self.replicates = True
        self.backup: Path | None = None
        self.excused = self.forked = False
        self.told: list[str] = []
        self.reports = 0
        self.delivered: list[int] = []
        self.acknowledged: list[int] = []
        first.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        replicate(first, second)
        wait_for_rows(second, 0)
        with self.tailing() as source:
            self.marker = source.latest()

    # -- what happens

    def write(self) -> None:
        for _ in range(self.chosen.randint(1, 4)):
            self.row += 1
            self.served.sql(f"INSERT INTO shop.t VALUES ({self.row})")
        self.follow()

    def turn(self) -> None:
        self.served.sql("FLUSH BINARY LOGS")

    def crash(self) -> None:
        self.served.kill()
        self.served.start()
        if self.replicates and self.served is self.first:
            promote(self.second)
            # By itself it would try again after a minute.
            self.second.sql("START SLAVE" if self.second.flavour == "mariadb" else "START REPLICA")

    def back_up(self) -> None:
        self.backup = self.folder / "backup"
        shutil.rmtree(self.backup, ignore_errors=True)
        with self.first.connect() as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            shutil.copytree(self.first.data, self.backup)

    def restore(self) -> None:
        """The primary as it was, which then writes and turns its files until nothing looks like less."""
        if self.backup is None:
            return self.back_up()
        self.stop_replica()
        self.first.kill()
        shutil.rmtree(self.first.data)
        shutil.copytree(self.backup, self.first.data)
        self.first.start()
        self.excused = True
        if self.served is self.first:
            self.forked = True
            for _ in range(self.chosen.choice((0, 2, 8))):
                self.write()
                self.turn()
            if self.chosen.random() < 0.5:
                purge(self.first)
        return None

    def reset(self) -> None:
        self.stop_replica()
        time.sleep(1.0 - time.time() % 1.0)  # a file says in which second it was begun
        self.served.sql(
            "RESET MASTER" if self.served.flavour == "mariadb" else "RESET BINARY LOGS AND GTIDS",
            "SET sql_log_bin = 0",
            "DELETE FROM shop.t",
        )
        self.excused = self.forked = True

    def purge(self) -> None:
        self.turn()
        purge(self.served)
        self.excused = True  # nobody looked

    def change_over(self) -> None:
        """To the replica, or back. Not where one gave the other's GTIDs to other transactions: nothing shows that."""
        if self.forked:
            return self.write()
        self.follow()
        self.stop_replica()
        rows = self.rows()
        self.served = self.second if self.served is self.first else self.first
        if self.rows() != rows:
            self.excused = True
        return None

    # -- a publisher

    @contextmanager
    def tailing(self, flipped: bool = False) -> Iterator[LogSource]:
        server = self.served
        with ExitStack() as stack:
            port = server.port
            if flipped:
                proxy = stack.enter_context(FaultProxy(server.host, server.port))
                proxy.flip_mask = 1 << self.chosen.randrange(8)
                proxy.after(self.chosen.randrange(12_000), proxy.flip)
                port = proxy.port
            source = open_source(
                f"{server.flavour}://{server.user}@127.0.0.1:{port}/?tls=off",
                log="log",
                state_dir=self.folder / "state",
                sharding=Sharding("log"),
                server_ids="",
                skip_tables=frozenset(),
                login=Login(server.password_file),
            )
            _patiently(source.start)
            stack.callback(source.stop)
            yield source

    def publish(self) -> None:
        """A publisher starts, delivers what there is, and ends; its files may turn and go while it is there."""
        with self.tailing(flipped=self.chosen.random() < 0.4) as source:
            end = self.deliver(source)
            if end is not None and self.chosen.random() < 0.4:
                self.turn()
                purge(self.served)
                self.acknowledge(end)
                self.write()
                self.deliver(source)

    def deliver(self, source: LogSource) -> Datamarker | None:
        """Returns the datamarker behind what was delivered; ``None``: it was not, and that was reported."""
        try:
            read = _patiently(lambda: self.read(source))
        except (Diverged, PositionPurged) as error:
            self.report(source, error)
            return None
        rows = self.rows()
        came = _rows_of(read)
        assert self.acknowledged + came == rows, f"{came} came behind {self.acknowledged}, the server has {rows}"
        phantoms = set(self.delivered) - set(rows)
        assert not phantoms, f"{phantoms} were delivered, are in no log, and nothing was reported"
        self.delivered = rows
        end = read.markers[-1] if read.markers else self.marker
        if self.chosen.random() < 0.5:
            self.acknowledge(end)
        return end

    def read(self, source: LogSource) -> Read:
        """As many rows as there have to be, and what comes beyond them: nothing does."""
        wanted = len(self.rows()) - len(self.acknowledged)
        read, deadline = Read(), time.monotonic() + PATIENCE_S
        reader = source.open(self.marker)
        try:
            while True:
                segment = reader.read(1 << 20, 0.1)
                if segment is not None:
                    read.add(segment)
                elif len(read.updates) >= wanted or time.monotonic() > deadline:
                    return read
        finally:
            reader.close()

    def acknowledge(self, end: Datamarker) -> None:
        self.marker, self.acknowledged = end, list(self.delivered)

    def report(self, source: LogSource, error: Diverged | PositionPurged) -> None:
        """The application takes back what is gone and goes on, as the error says; or gets a copy of the table."""
        assert self.excused, f"nothing was lost, and this was reported: {error}"
        assert error.hint
        self.reports += 1
        self.excused = False
        resume = error.resume if isinstance(error, Diverged) else ""
        try:
            to: Datamarker | None = _patiently(lambda: source.locate(resume)) if resume else None
        except (Diverged, PositionPurged, PositionError):
            to = None
        if to is None:
            self.marker = _patiently(source.latest)
            self.acknowledged = self.rows()
        else:
            self.marker = to
        self.delivered = list(self.acknowledged)
        self.deliver(source)

    # -- inside

    def rows(self) -> list[int]:
        return [int(row[0]) for row in self.served.sql("SELECT id FROM shop.t ORDER BY id")]

    def follow(self) -> None:
        if self.replicates and self.served is self.first:
            wait_for_rows(self.second, len(self.rows()))

    def stop_replica(self) -> None:
        if self.replicates:
            promote(self.second)
            self.replicates = False

    def run(self) -> None:
        happens = {
            self.write: 5,
            self.turn: 2,
            self.publish: 6,
            self.crash: 1,
            self.back_up: 1,
            self.restore: 2,
            self.reset: 1,
            self.purge: 1,
            self.change_over: 2,
        }
        steps = self.chosen.choices(list(happens), list(happens.values()), k=STEPS)
        for step in (self.write, self.publish, *steps, self.write, self.publish, self.publish):
            self.told.append(step.__name__)
            step()


def _rows_of(read: Read) -> list[int]:
    return [int(str(update.key[0])) for update in read.updates]


def _patiently(ask: Callable[[], T]) -> T:
    """As a publisher does: what passes by itself is tried again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except Retryable:
            if time.monotonic() > deadline:
                raise


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_whatever_happens_nothing_is_lost_in_silence(
    new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = 0
    for number in range(ROUNDS):
        seed = SEED + number
        first, second = new_server(log_slave_updates="ON"), new_server(**REPLICA)
        search = Search(first, second, tmp_path / str(number), random.Random(f"{seed} {first.flavour}"))
        try:
            search.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}, after {' '.join(search.told)}: {error}") from error
        finally:
            first.close()
            second.close()
        reports += search.reports
    if ROUNDS > 1:
        with capsys.disabled():
            print(f"\n{ROUNDS} orders, {reports} reports")
