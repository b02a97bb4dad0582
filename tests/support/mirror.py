"""What an application holds that does as it is told of a server's rows, and what the server shows of the same
tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.mysql_differential import Session, Table
from tests.support.mysql_types import Shown
from tests.system.harness.logs import Lines

Rows = dict[str, dict[str, dict[str, Any]]]
"""By table and key: values by column, each with its kind."""

_MOST = 5


class Mirror:
    """``log``: what `mirrored_application` writes.

    ``rows``: without the columns that no update told; ``ids``: of the updates, by shard."""

    def __init__(self, log: Path) -> None:
        self._lines, self._notices = Lines(log), Lines(log.with_name(log.name + ".notices"))
        self.rows: Rows = {}
        self.ids: dict[str, set[str]] = defaultdict(set)
        self.told: list[list[str]] = []
        """Besides updates: shard, epoch, kind, and of a loss its range."""

    def look(self) -> Mirror:
        """Read what was written since."""
        for line in self._lines.new():
            self._one(json.loads(line))
        self.told += [line.split(" ") for line in self._notices.new()]
        return self

    def _one(self, update: dict[str, Any]) -> None:
        op = update["op"]
        self.ids[update["shard"]].add(update["id"])
        table = self.rows.setdefault(update["table"], {})
        if op == "truncate":
            table.clear()
            return
        key = json.dumps(update["key"])
        row = table.pop(json.dumps(update["old_key"]) if update["old_key"] else key, {})
        if op == "delete":
            return
        table[key] = update["after"] if op in {"insert", "upsert"} else {**row, **update["after"]}

    def kinds(self, shard: str) -> list[str]:
        """What the application was told of a shard besides updates, in order."""
        return [kind for of, _, kind, *_ in self.told if of == shard]


def selected(session: Session, tables: Sequence[Table]) -> Rows:
    """What ``SELECT`` shows of them, as :class:`Mirror` has it."""
    found: Rows = {}
    for table in tables:
        rows = found[table.name] = {}
        for row in session.rows(table):
            values = {name: _plain(value) for name, value in row.items()}
            rows[json.dumps([values[name] for name in table.key])] = values
    return found


def _plain(shown: Shown) -> list[Any]:
    kind, value = shown
    if isinstance(value, bytes):
        value = value.hex()
    return ["int" if kind == "uint" else kind, value]


def differences(wanted: Rows, held: Rows, defaults: Mapping[str, Any]) -> list[str]:
    """Some of what differs.

    A column of which no update told holds its default, which is NULL where ``defaults`` has none."""
    found: list[str] = []
    for table, rows in wanted.items():
        mine = held.get(table, {})
        found += [f"{table}: {key} is missing" for key in rows.keys() - mine.keys()]
        found += [f"{table}: {key} should be gone" for key in mine.keys() - rows.keys()]
        for key in rows.keys() & mine.keys():
            for name, value in rows[key].items():
                has = mine[key].get(name, defaults.get(name, ["null", True]))
                if has != value:
                    found.append(f"{table}: {key}: {name} is {str(has)[:200]}, SELECT says {str(value)[:200]}")
    return found[:_MOST]
