"""``python -m tests.system.harness.counting SETTINGS``: an application that adds what it receives to counters, and
writes each increment into a ledger.

Settings: ``application``, ``options`` (of `subscriber_sdk.run`), ``handling`` (``transactional`` or ``at least once``),
``store`` and ``url`` of the target, ``tricks`` (a folder; what its files are called, :class:`_Tricks` explains).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import sqlalchemy

from subscriber_sdk import Subscriber, Update, run
from tests.system.harness.child import settings

__all__ = ["main"]

Execute = Callable[[str], object]
_BOUND_S: Final = 2.0
"""The longest statement or pause in a transaction: less than a lease and the time of a handler."""


class _Tricks:
    """What a handler does at the second update of a transaction while a file of that name is in the folder.

    ``gate``, which has a transaction's number: at that one or a later one it writes the file ``entered`` and waits
    until the gate is gone. ``refuse``: raises. ``swallow``: fails to write, once, and returns all the same. ``ddl``:
    makes a table, once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def gate(self, number: int) -> None:
        gate = self._folder / "gate"
        with contextlib.suppress(FileNotFoundError):
            if number >= int(gate.read_text()):
                (self._folder / "entered").write_text(str(os.getpid()))
                while gate.exists():
                    time.sleep(0.005)

    def refuse(self) -> None:
        if (self._folder / "refuse").exists():
            raise ValueError("refused")

    def once(self, name: str) -> bool:
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        return True


def _count(update: Update, execute: Execute, tricks: _Tricks) -> None:
    """The effects of one update."""
    account, after = update.key[0], update.after
    assert isinstance(account, bytes)
    assert after is not None
    value = after["value"]
    assert isinstance(value, bytes)
    number, amount = map(int, value.split())
    name = account.decode()
    if amount < 0:
        tricks.gate(number)
        tricks.refuse()
        if tricks.once("ddl"):
            execute("CREATE TABLE made_by_handler (n INT)")
        if tricks.once("swallow"):
            with contextlib.suppress(Exception):
                execute("UPDATE no_such_table SET total = 0")
            return
    execute(f"INSERT INTO ledger VALUES ({number}, '{name}', {amount})")
    execute(f"UPDATE counters SET total = total + {amount} WHERE account = '{name}'")


class _AtLeastOnce(Subscriber):
    """Each update's effects in a transaction, and the datamarker where the publisher keeps it."""

    def __init__(self, url: str, tricks: _Tricks) -> None:
        self._engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), pool_pre_ping=True)
        self._tricks = tricks

    def on_update(self, update: Update) -> None:
        with self._engine.begin() as connection:
            _count(update, connection.exec_driver_sql, self._tricks)


def _transactional(given: dict[str, Any], tricks: _Tricks) -> Subscriber:
    from subscriber_sdk.transactional import Transactional, TransactionalHandler

    class Totals(TransactionalHandler[Any]):
        def on_update(self, update: Update, connection: Any) -> None:
            execute = connection.execute if given["store"] == "psycopg" else connection.exec_driver_sql
            _count(update, execute, tricks)

    if given["store"] == "psycopg":
        from subscriber_sdk.transactional.psycopg import PsycopgStore

        return Transactional(Totals(), PsycopgStore(given["url"], timeout=_BOUND_S))
    from subscriber_sdk.transactional.sqlalchemy import SqlAlchemyStore

    return Transactional(Totals(), SqlAlchemyStore(given["url"], timeout=_BOUND_S))


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    tricks = _Tricks(Path(given["tricks"]))
    kept = given["handling"] == "transactional"
    subscriber = _transactional(given, tricks) if kept else _AtLeastOnce(given["url"], tricks)
    run(subscriber, application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
