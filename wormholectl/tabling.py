"""``wormholectl snapshot`` and ``history``: what was asked for, checked before Spark is started, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wormhole.config import DatasetConfig
from wormhole.model.errors import UsageError
from wormholectl.archiving import archived, check_formats
from wormholectl.guard import lazily
from wormholectl.output import print_json, print_table, print_text, say_waiting
from wormholectl.render import SCHEMA

if TYPE_CHECKING:
    from spark_replay.archive.store import ArchiveStore
    from spark_replay.tables.chosen import Reading
    from spark_replay.tables.folder import Written

__all__ = ["Asking", "history", "snapshot"]


@dataclass(frozen=True, slots=True)
class Asking:
    """What the command line was given. ``archives``: that may be read though only ZooKeeper names them. ``start``: of a history. ``types`` and ``fields``: ``TABLE:NAME=TYPE``."""

    to: str
    dataset: str
    archives: tuple[str, ...]
    tables: tuple[str, ...]
    start: str
    until: str
    types: tuple[str, ...]
    fields: tuple[str, ...]
    master: str


def snapshot(coordinator: str, asking: Asking, as_json: bool) -> None:
    """Write one and tell. Raises :class:`~wormhole.model.errors.WormholeError`."""
    parts = _Parts(coordinator, asking)
    module = lazily("spark_replay.tables.snapshot", "spark")
    written = parts.run(module.write_snapshot)
    _show(written, parts.dataset.name, as_json)


def history(coordinator: str, asking: Asking, as_json: bool) -> None:
    """Write one and tell. Raises :class:`~wormhole.model.errors.WormholeError`."""
    parts = _Parts(coordinator, asking)
    module = lazily("spark_replay.tables.history", "spark")
    plan = lazily("spark_replay.replay.plan", "spark")
    start = plan.asked_from(asking.start or "earliest", "", parts.now_us)
    _show(parts.run(module.write_history, start=start), parts.dataset.name, as_json)


class _Parts:
    """What both commands need. All that can be wrong with the request is told before Spark starts."""

    def __init__(self, coordinator: str, asking: Asking) -> None:
        lazily("spark_replay.spark.session", "spark").check_spark()
        self.asking = asking
        self.now_us = time.time_ns() // 1000
        chosen = archived(coordinator, asking.dataset, asking.archives)
        self.store: ArchiveStore = lazily("spark_replay.archive.store", "spark").store_of(chosen.config, chosen.name)
        self.dataset = chosen.config.datasets[chosen.name]
        self.until = lazily("spark_replay.replay.plan", "spark").asked_until(asking.until, self.now_us)
        self.readings = _readings(self.dataset, asking)
        if chosen.stored:
            check_formats(chosen.name, (one.value_format for one in self.readings.values()))
        self.to = asking.to if "://" in asking.to else str(Path(asking.to).absolute())

    def run(self, write: Any, **more: Any) -> Written:
        say_waiting("starting Spark")
        spark = lazily("spark_replay.spark.session", "spark").spark_session(
            f"wormhole tables of {self.dataset.name}", self.asking.master or None
        )
        written: Written = write(
            spark,
            self.store,
            self.to,
            tables=self.asking.tables,
            readings=self.readings,
            until=self.until,
            now=datetime.fromtimestamp(self.now_us / 1e6, UTC),
            **more,
        )
        return written


def _readings(dataset: DatasetConfig, asking: Asking) -> dict[str, Reading]:
    reading = lazily("spark_replay.tables.chosen", "spark").Reading
    types, fields = _named("--type", asking.types), _named("--field", asking.fields)
    return {
        table: reading(types.get(table, {}), fields.get(table, {}), dataset.values.get(table, dataset.value_format))
        for table in {*types, *fields}
    }


def _named(option: str, given: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in given:
        table, _, rest = text.partition(":")
        name, _, kind = rest.partition("=")
        if not (table and name and kind):
            raise UsageError(
                f"{option} {text} must be TABLE:NAME=TYPE", hint=f"for example {option} shop.orders:price=text"
            )
        found.setdefault(table, {})[name] = kind
    return found


def _show(written: Written, dataset: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "dataset": dataset,
                "to": written.to,
                "tables": [
                    {"table": table, "folder": one.folder, "rows": one.rows} for table, one in written.tables.items()
                ],
                "shards": [{"shard": shard, "place": place} for shard, place in written.places.items()],
                "left_out": [{"table": table, "because": why} for table, why in written.left_out.items()],
                "problems": list(written.problems),
            }
        )
        return
    rows = [(table, str(one.rows), f"{written.to}/{one.folder}") for table, one in written.tables.items()]
    print_table(("TABLE", "ROWS", "FOLDER"), rows, "no table was written")
    for shard, place in written.places.items():
        print_text(f"{shard} up to {place}")
    for table, why in written.left_out.items():
        print_text(f"left out: {table}: {why}")
    if written.problems:
        print_text(f"no start for a replay: {'; '.join(written.problems)}")
