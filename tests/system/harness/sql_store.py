"""A database on a server, written to by one connection like any application's; the server may die meanwhile."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tests.support.eventually import PATIENCE_S
from tests.system.harness.store import Operation, Store
from tests.system.harness.truth import Content, digest


class SqlStore(Store):
    """``tables``: beside ``default``; the log names them with their database or schema, which is :attr:`home`.

    ``lost``: what the driver raises when the server has died.
    """

    home: ClassVar[str]
    lost: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, journal: Path, tables: Iterable[str]) -> None:
        super().__init__(journal)
        self._tables = [f"{self.home}.{name}" for name in ("default_", *tables)]
        self._connection: Any = None
        self._keys: dict[str, set[bytes]] = {}
        self._sequence = 0
        self._altered = False
        self._open()
        self.settle()

    @property
    def sequence(self) -> int:
        return self._sequence

    def changes(self, operations: list[Operation]) -> list[Content]:
        present = {table: set(keys) for table, keys in self._keys.items()}
        found = []
        for name, key, value in operations:
            table = self._full(name)
            there = key in present[table]
            if value is not None:
                found.append(Content("update" if there else "insert", table, key.hex(), digest(value)))
                present[table].add(key)
            elif there:
                found.append(Content("delete", table, key.hex(), ""))
                present[table].remove(key)
        return found

    def apply(self, operations: list[Operation]) -> bool:
        if not self._happened(*(self._statement(self._full(name), key, value) for name, key, value in operations)):
            return False
        for name, key, value in operations:
            keys = self._keys[self._full(name)]
            keys.discard(key) if value is None else keys.add(key)
        return True

    def state(self) -> dict[str, dict[str, str]]:
        return {
            table: {bytes(key).hex(): digest(bytes(value)) for key, value in self._rows(table, "value")}
            for table in self._tables
        }

    def close(self) -> None:
        self._connection.close()
        super().close()

    # -- what each server has of its own

    @abstractmethod
    def _statement(self, table: str, key: bytes, value: bytes | None) -> str:
        """One change of a row; without a value, its deletion."""

    @abstractmethod
    def _commit(self, statements: tuple[str, ...]) -> None:
        """Run what makes one transaction."""

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def _alone(self) -> bool:
        """Whether no connection of an earlier writer is left."""

    @abstractmethod
    def _look(self) -> None:
        """Make the tables where they are missing, and read what the server holds."""

    @abstractmethod
    def _rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The key of each row, and these columns."""

    # -- inside

    def _full(self, name: str) -> str:
        return f"{self.home}.{'default_' if name == 'default' else name}"

    def _happened(self, *statements: str) -> bool:
        """Run what makes one transaction. When the server dies meanwhile, what it holds when it is back decides
        whether the transaction happened."""
        intended = self._sequence + 1
        try:
            self._commit(statements)
        except self.lost:
            self._open()
            return self._sequence >= intended
        self._sequence = intended
        return True

    def _open(self) -> None:
        """Connect, once the server is there and nothing of an earlier writer's is under way."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(Exception):
                self._connection.close()
            try:
                self._connection = self._connect()
                while not self._alone():
                    time.sleep(0.02)
                self._look()
                self._keys = {table: {bytes(key) for (key,) in self._rows(table)} for table in self._tables}
                return
            except self.lost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
