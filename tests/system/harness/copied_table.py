"""A table with text keys and a column ``value``, its publisher, and applications that keep a copy of it."""

from __future__ import annotations

import itertools
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.command_line import run
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.repeating import repeating
from tests.system.harness.copying import copied, opened
from tests.system.harness.processes import Process
from wormhole.wire.v1 import admin_pb2

__all__ = ["CopiedTable", "changing"]

_SETTINGS: Final = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"'


class CopiedTable(ABC):
    """Nothing runs at first. ``source``, ``dataset``: what the configuration says of them, in TOML.

    ``table``: its name, as updates have it. ``starts``: where each application begins. ``program``: the module that
    each runs (:mod:`.copying` or :mod:`.comparing`).
    """

    def __init__(
        self, folder: Path, table: str, source: str, dataset: str, starts: Mapping[str, str], program: str = "copying"
    ) -> None:
        self.folder, self.table = folder, table
        applications = "\n".join(
            f"""[applications.{name}]
dataset = "shop"
start = "{start}"
tables = ["{table}"]
subscribers = {{ {name}-1 = "127.0.0.1:{free_port()}" }}"""
            for name, start in starts.items()
        )
        self.publisher = PublisherProcess(folder, source, applications, publisher=_SETTINGS, dataset=dataset)
        self.subscribers = {}
        for name in starts:
            options = {"id": f"{name}-1", "coordinator": str(self.publisher.config)}
            given = {"application": name, "copy": str(self.copy(name)), "options": options}
            run_it = ["-m", f"tests.system.harness.{program}", json.dumps(given)]
            self.subscribers[name] = Process(name, run_it, folder)

    @abstractmethod
    def rows(self) -> Mapping[str, str]:
        """What the datastore holds: value by key."""

    def copy(self, application: str = "app") -> Path:
        """The file of the application's copy."""
        return self.folder / f"{application}.sqlite"

    def is_equal(self, application: str = "app") -> bool:
        """Whether the copy holds what the datastore holds."""
        there = self.rows()
        return copied(self.copy(application), self.table) == there

    def damage(self, sql: str, *values: object) -> None:
        """Write to the copy behind the application's back."""
        with closing(opened(self.copy())) as database:
            database.execute(sql, values)

    def backfill(self, application: str = "app") -> admin_pb2.BackfillStatus:
        """What is reported of it; empty while the publisher does not answer."""
        flow = self.publisher.flow(application)
        return admin_pb2.BackfillStatus() if flow is None else flow.backfill

    def await_done(self, application: str = "app", generation: int = 1) -> None:
        """Until the backfill has ended."""

        def done() -> bool:
            found = self.backfill(application)
            return found.state == "done" and found.generation == generation

        until(done, lambda: f"not done: {self.backfill(application)} {self.publisher.tail()}")

    def becomes(self, state: str, cause: str = "", application: str = "app") -> None:
        """Until the flow is in that state, for a cause that contains the text."""

        def so() -> bool:
            flow = self.publisher.flow(application)
            return flow is not None and flow.state == state and cause in flow.cause

        until(so, lambda: f"not {state}: {self.publisher.flow(application)} {self.publisher.tail()}")

    def ctl(self, *words: str) -> tuple[int, str, str]:
        """Run a command of ``wormholectl``."""
        return run(*words, "-c", str(self.publisher.config))

    def close(self) -> None:
        """Kill what runs."""
        for process in (self.publisher, *self.subscribers.values()):
            process.kill()


_CHANGES: Final = {
    "mariadb": (
        "DELETE FROM {} WHERE id = %(key)s",
        "UPDATE IGNORE {} SET id = %(other)s WHERE id = %(key)s",
        "UPDATE {} SET value = %(value)s WHERE id = %(key)s",
        "REPLACE INTO {} (id, value) VALUES (%(key)s, %(value)s)",
    ),
    "postgres": (
        "DELETE FROM {} WHERE id = %(key)s",
        "UPDATE {0} SET id = %(other)s WHERE id = %(key)s AND NOT EXISTS (SELECT FROM {0} WHERE id = %(other)s)",
        "UPDATE {} SET value = %(value)s WHERE id = %(key)s",
        "INSERT INTO {} VALUES (%(key)s, %(value)s) ON CONFLICT (id) DO UPDATE SET value = excluded.value",
    ),
}
_ALTER: Final = 200  # writes between two of them


@contextmanager
def changing(
    connection: Any, flavour: str, table: str, chance: random.Random, key: Callable[[], str], *, alter: bool = False
) -> Iterator[None]:
    """Changes random rows while the block lasts: each kind of change, in small transactions. ``alter``: also the
    table."""
    numbers = itertools.count(1)
    with connection, connection.cursor() as cursor:

        def change() -> None:
            number = next(numbers)
            if alter and number % _ALTER == 0:
                # With a default it would change the rows that were sent: the backfill would begin again.
                what = "ADD COLUMN more INT FIRST" if number % (2 * _ALTER) else "DROP COLUMN more"
                cursor.execute(f"ALTER TABLE {table} {what}")
            values = {"key": key(), "other": key(), "value": f"w{number}"}
            cursor.execute(chance.choice(_CHANGES[flavour]).format(table), values)

        with repeating(change, 0.005):
            yield
