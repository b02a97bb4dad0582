"""A RocksDB with default options, owned by the writer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rocksdict

from tests.system.harness.store import Operation, Store
from tests.system.harness.truth import Content, digest


class RocksStore(Store):
    """``tables``: column families beside ``default``."""

    def __init__(self, path: Path, journal: Path, tables: Iterable[str]) -> None:
        super().__init__(journal)
        raw = rocksdict.Options(raw_mode=True)
        there = path.exists() and [name for name in rocksdict.Rdict.list_cf(str(path)) if name != "default"]
        self._db = rocksdict.Rdict(
            str(path), raw, column_families={name: rocksdict.Options(raw_mode=True) for name in there or ()}
        )
        self._families: dict[str, Any] = {"default": self._db}
        for name in tables:
            known = there and name in there
            self._families[name] = (
                self._db.get_column_family(name)
                if known
                else self._db.create_column_family(name, rocksdict.Options(raw_mode=True))
            )
        self._handles = {name: self._db.get_column_family_handle(name) for name in self._families}
        self.settle()

    @property
    def sequence(self) -> int:
        found: int = self._db.latest_sequence_number()
        return found

    def changes(self, operations: list[Operation]) -> list[Content]:
        return [
            Content("delete" if value is None else "upsert", table, key.hex(), "" if value is None else digest(value))
            for table, key, value in operations
        ]

    def apply(self, operations: list[Operation]) -> bool:
        if len(operations) == 1:
            ((table, key, value),) = operations
            if value is None:
                del self._families[table][key]
            else:
                self._families[table][key] = value
            return True
        batch = rocksdict.WriteBatch(raw_mode=True)
        for table, key, value in operations:
            if value is None:
                batch.delete(key, self._handles[table])
            else:
                batch.put(key, value, self._handles[table])
        self._db.write(batch)
        return True

    def flush(self) -> None:
        """Flush every table: RocksDB then deletes its log."""
        for family in self._families.values():
            family.flush()

    def state(self) -> dict[str, dict[str, str]]:
        return {
            name: {key.hex(): digest(value) for key, value in family.items()} for name, family in self._families.items()
        }

    def close(self) -> None:
        self._handles.clear()
        for family in self._families.values():
            family.close()
        super().close()
