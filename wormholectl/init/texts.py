"""The texts that ``wormholectl init`` writes: a configuration, a subscriber and its test.

Pure: the text depends only on the arguments."""

from __future__ import annotations

import glob
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from publisher.relay.configured import SLOT_BUDGET
from wormhole.config.datastores import datastore
from wormhole.model.findings import LogGrowth, SeenTable
from wormhole.model.units import format_size
from wormhole.ports.datastore import Datastore
from wormholectl.init.copy_texts import PRINTED, SHOW, copy_program, copy_test
from wormholectl.relay.sizing import BUDGET, lasts

__all__ = ["USUAL_LOG", "Project", "configuration", "example_of", "handler_test", "name_from", "subscriber"]

LONGEST_NAME: Final = 64
USUAL_LOG: Final = "db1"
"""The name of a log whose URL contains no name."""
_SHOWN: Final = 6
_LEAST_BUDGET: Final = 128 << 20
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
# Tables in which migration tools record the applied migrations.
_OF_TOOLS: Final = re.compile(r"(?i)migration|schema_(version|history)|alembic|flyway|changelog|internal_metadata")
_EXISTING: Final = 'start = "existing"  # with the rows that the tables hold; "latest": with the next change'
_LATEST: Final = 'start = "latest"  # with the next change; "existing": with the rows that the tables hold'
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Project:
    """The values for the texts. ``name``: the name of the dataset and of the TOML file; ``source``: its URL without a
    password.

    ``database``: the database whose tables the application receives; empty for all databases. ``tables``: the tables
    that were found, named as in updates; ``example``: the table of the example. ``password_file``: its path in the
    configuration; empty for a datastore without passwords. ``listen``: the address of the subscriber. ``existing``:
    whether the application receives existing rows; its program then keeps a copy of the tables. ``log``: the log's
    name. ``growth``: the measured growth of the log, or ``None``; ``free``: free bytes on the disk of the state.
    ``sink``: the URL of a store that a sink fills instead of a program; ``sink_password_file``: the file with the
    password of that store. Both are empty without a sink.
    """

    name: str
    application: str
    source: str
    database: str = ""
    tables: Sequence[str] = ()
    example: str = ""
    password_file: str = ""
    listen: str = "127.0.0.1:7400"
    existing: bool = False
    log: str = USUAL_LOG
    growth: LogGrowth | None = None
    free: int | None = None
    sink: str = ""
    sink_password_file: str = ""

    @property
    def toml(self) -> str:
        """The name of the configuration file."""
        return f"{self.name}.toml"

    @property
    def log_option(self) -> str:
        """The option that a command about the log needs beside its URL; empty if the URL contains the log's name."""
        usual = name_from(self.datastore.name_in(self.source), otherwise=USUAL_LOG)
        return "" if self.log == usual else f" --log {shlex.quote(self.log)}"

    @property
    def of_bytes(self) -> bool:
        """Whether keys and values are bytes. Otherwise columns have types."""
        return self.datastore.capabilities.of_bytes

    @property
    def has_databases(self) -> bool:
        """Whether tables are named ``database.table``."""
        return self.datastore.capabilities.databases

    @property
    def datastore(self) -> Datastore:
        """The kind of the source."""
        return datastore(self.source.partition(":")[0])


def name_from(text: str, otherwise: str) -> str:
    """A valid name for the configuration, similar to ``text``; ``otherwise`` if no character of ``text`` is valid."""
    return _NOT_IN_A_NAME.sub("-", text).strip("-_.")[:LONGEST_NAME] or otherwise


def example_of(tables: Sequence[SeenTable]) -> SeenTable | None:
    """The best table for an example: it has a primary key of one column and few rows, and does not belong to a tool. A
    table without a key is chosen only if no table has a key. ``None`` without tables.
    """

    def unfit(table: SeenTable) -> tuple[object, ...]:
        rows = table.rows or sys.maxsize  # an empty table has no row to change
        return not table.key_columns, bool(_OF_TOOLS.search(table.table)), table.key_columns > 1, rows

    return min(tables, key=unfit, default=None)


def configuration(project: Project) -> str:
    """The TOML file."""
    dataset, application = _key(project.name), _key(project.application)
    others = '"log", "database", "table"' if project.has_databases else '"log", "table"'
    lines = [
        f"# Written by `wormholectl init`; `wormholectl config check {project.toml}` shows what is wrong with it.",
        "# docs/configuration.md lists every key.",
        "version = 1",
        "",
        "[coordinator]",
        (
            "# One host, and the subscribers' addresses are below. For several hosts, or shards that move "
            "between subscribers:"
        ),
        '# zookeeper = "zk1:2181,zk2:2181/wormhole" in place of this line, and no subscribers.',
        "static = true",
        "",
        "[publisher]",
        "# Datamarkers, that is how far each subscriber got"
        + (", and the log files that are still needed." if "pin_folder" not in project.datastore.refuses else "."),
        f"state_dir = {_text(f'.wormhole/{project.name}/state')}",
        "",
        f"[datasets.{dataset}]",
        f"shard_by = {{ hash = 4 }}  # changes of one key stay in order; also {others}",
        "",
        f"[datasets.{dataset}.copies.main.logs.{_key(project.log)}]",
        *(f"# {comment}" for comment in project.datastore.url_comments(project.source)),
        f"source = {_text(project.source)}",
    ]
    lines += _relay(project)
    if project.password_file:
        lines.append(
            f"password_file = {_text(project.password_file)}  # one line; no other user may read it: chmod 600"
        )
    lines += ["", f"[applications.{application}]", f"dataset = {_text(project.name)}", *_tables(project)]
    lines += [
        "# Where it begins; later only its datamarkers count.",
        _EXISTING if project.existing else _LATEST,
        "",
        f"[applications.{application}.subscribers]",
        f"one = {_text(project.listen)}  # where {'the sink' if project.sink else 'subscriber.py'} listens",
        "",
    ]
    if project.sink:
        lines += [
            "# docs/sinks.md leads to the page that has every key of this kind.",
            f"[sinks.{application}]",
            f"url = {_text(project.sink)}",
        ]
        if project.sink_password_file:
            lines.append(f"password_file = {_text(project.sink_password_file)}")
        lines.append("")
    return "\n".join(lines)


def _relay(project: Project) -> list[str]:
    """The lines about the relay. If the datastore keeps its log for a reader, the relay is on. For other servers a
    comment shows how to turn it on. A datastore of files needs no relay.
    """
    if project.datastore.local_path(project.source) is not None:
        return []
    if not project.datastore.holds_log:
        return ['# relay = "cache"  # flows that are behind read a record on this disk, not the server: docs/relay.md']
    budget = BUDGET
    while project.free is not None and budget > project.free // 2 and budget > _LEAST_BUDGET:
        budget //= 2
    growth = project.growth or LogGrowth(unknown="it was not measured")
    held = lasts(growth, budget) or "for how long is not known yet: `wormholectl doctor` measures it"
    kept = ", ".join(filter(None, ("what the server keeps at most", lasts(growth, SLOT_BUDGET))))
    return [
        "# Flows that are behind read a record of the log on this disk, so that the server need not keep it for them",
        '# (docs/relay.md). "cache": the server keeps its log as well; "off": no record.',
        'relay = "hold"',
        f"relay_budget = {_text(format_size(budget))}  # {held}",
        f"slot_budget = {_text(format_size(SLOT_BUDGET))}  # {kept}",
    ]


def subscriber(project: Project) -> str:
    """The program that receives updates."""
    if project.existing:
        source = _in_prose(project.source)
        names = (_literal(project.application), _literal(project.toml))
        return copy_program(source, *names, of_bytes=project.of_bytes)
    return f'''\
"""Receives every committed change of {_in_prose(project.source)} and drops what it makes stale from a cache.

Start it with: python subscriber.py
"""

import time
from pathlib import Path

from subscriber_sdk import Op, Subscriber, Update, run

{PRINTED}

class CacheInvalidator(Subscriber):
    """An update comes at least once: after a crash some come again. Dropping an entry twice does no harm."""

    def __init__(self, cache):
        self.cache = cache
        self.second = self.shown = 0

    async def on_update(self, update: Update) -> None:  # to return is "processed", to raise is "try again"
        if update.op in (Op.TRUNCATE, Op.DELETE_RANGE):  # many rows at once
            self.cache.clear()
        else:
            self.cache.pop((update.table, *update.key), None)
        self.show(update)  # update.before and update.after hold the values

{SHOW}

if __name__ == "__main__":
    run(
        CacheInvalidator({{}}),
        application={_literal(project.application)},
        coordinator=str(Path(__file__).with_name({_literal(project.toml)})),
    )
'''


def handler_test(project: Project) -> str:
    """The program's test."""
    if project.example:
        table = project.example
    elif project.of_bytes:
        table = "default"
    else:
        table = f"{project.database or 'shop'}.users" if project.has_databases else "users"
    if project.existing:
        return copy_test(_literal(table), of_bytes=project.of_bytes)
    if project.of_bytes:
        key, other, change = 'b"user:7"', 'b"user:8"', 'op=Op.UPSERT, after={"value": b"Ada"}'
        barrier = 'key=b"user:", key_end=b"user;", op=Op.DELETE_RANGE'
    else:
        key, other, change = "7", "8", 'before={"name": "Eve"}, after={"name": "Ada"}'
        barrier = "key=(), op=Op.TRUNCATE"
    return f'''\
"""Drives subscriber.py through commits, a crash and a repetition, without any server: `wormhole_kit` comes with the package.

Run it with: pytest test_subscriber.py
"""

from subscriber_sdk import Op
from subscriber_sdk.testing import update

from subscriber import CacheInvalidator

TABLE = {_literal(table)}


def test_what_changed_is_dropped_once_or_twice(wormhole_kit):
    cache = {{(TABLE, {key}): "stale", (TABLE, {other}): "kept"}}
    flow = wormhole_kit.attach(CacheInvalidator(cache))
    flow.commit(update(TABLE, key={key}, {change}))
    assert cache == {{(TABLE, {other}): "kept"}}
    flow.crash_and_redeliver()  # nothing was acknowledged: the same comes again
    assert cache == {{(TABLE, {other}): "kept"}}
    assert flow.datamarker == flow.end  # and now it is


def test_what_touches_many_rows_drops_everything(wormhole_kit):
    cache = {{(TABLE, {key}): "stale"}}
    wormhole_kit.attach(CacheInvalidator(cache)).commit(update(TABLE, {barrier}))
    assert not cache
'''  # noqa: E501


def _tables(project: Project) -> list[str]:
    seen = ", ".join(map(_in_prose, project.tables[:_SHOWN])) + (" ..." if len(project.tables) > _SHOWN else "")
    note = f"# Seen when this was written: {seen}" if seen else ""
    if project.database:
        chosen = f"tables = [{_text(f'{glob.escape(project.database)}.*')}]"
        return [*([note] if note else []), chosen]
    example = "shop.*" if project.has_databases else "users"
    return [*([note] if note else []), f'# tables = ["{example}"]  # all of them without this line']


def _text(value: str) -> str:
    """A TOML string."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(value: str) -> str:
    """A Python string literal, in double quotes if that needs no escaping."""
    quoted = json.dumps(value)
    return quoted if quoted == f'"{value}"' else repr(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _in_prose(value: str) -> str:
    """``value`` for a comment or docstring, without characters that would end the line or the text."""
    return _text(value)[1:-1].replace('\\"', "'").replace("\\", "/")
