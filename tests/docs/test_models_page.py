"""docs/models.md: its commands with a real server, and its programs with what the log has then."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import ModelMismatch, Op, Update
from subscriber_sdk.testing import Change, Kit
from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.pages import Page
from tests.support.server_tail import Tail
from wormhole.filters import Filter
from wormhole.model.schema import Column, Schema
from wormhole.wire.rows import encode_row
from wormholectl.tail.log_tail import Selected

TABLE = """(id INT PRIMARY KEY, email VARCHAR(80) NOT NULL, born DATE, plan ENUM('free', 'paid') NOT NULL,
    tags SET('new', 'vip') NOT NULL, settings JSON)"""


@pytest.fixture
def flavour() -> str:
    return "mariadb"


@pytest.fixture
def page(database_server: DatabaseServer, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "models", raising=False)
    where = f"{database_server.host}:{database_server.port}/{shop}"
    return Page(
        "docs/models.md",
        {
            "mysql://wormhole@db1:3306/shop": f"mariadb://wormhole@{where}",
            "db1.password": str(database_server.password_file),
        }
        | {"Table shop.users": f"Table {shop}.users", "of shop.users": f"of {shop}.users"},
    )


def typed(line: str) -> tuple[int, str, str]:
    return run(*shlex.split(line)[1:])


def test_the_class_the_handler_and_the_check(
    page: Page,
    database_server: DatabaseServer,
    shop: str,
    tail: Callable[..., Tail],
    capsys: pytest.CaptureFixture[str],
) -> None:
    database_server.sql(f"CREATE TABLE {shop}.users {TABLE}")
    assert typed(page.command("models mariadb"))[0] == 0
    shown, program, _ = page.blocks("python")
    name, _, module = shown.partition("\n")
    written = Path(name.removeprefix("# ")).read_text()
    assert all(part in written for part in module.split("\n\n\n"))

    names: dict[str, Any] = {"__name__": "mailer"}
    exec(compile(program, "page", "exec", dont_inherit=True), names)
    source = tail(database_server).source
    start = source.latest()
    database_server.sql(
        f"INSERT INTO {shop}.users VALUES (7, 'ada@example.org', '1815-12-10', 'paid', 'vip,new', '{{}}')",
        f"DELETE FROM {shop}.users",
        f"TRUNCATE {shop}.users",
        f"ALTER TABLE {shop}.users DROP email",
        f"INSERT INTO {shop}.users VALUES (8, NULL, 'free', '', NULL)",
    )
    added, deleted, emptied, other = read(source, start, shop)
    mailer = names["Mailer"]()
    for update in (added, deleted, emptied):
        asyncio.run(mailer.on_update(update))
    assert capsys.readouterr().out == "welcome ada@example.org, born 1815\ndelete (7,)\ntruncate ()\n"

    with pytest.raises(ModelMismatch) as mismatch:
        asyncio.run(mailer.on_update(other))
    (message,) = re.findall(r"^update .*?correct it$", page.text, re.MULTILINE | re.DOTALL)
    assert unplaced(str(mismatch.value)) == unplaced(message)
    status, out, _ = typed(page.command("models --check"))
    assert (status, out.splitlines()[0]) == (1, f"{shop}.users: changed")
    database_server.sql(f"ALTER TABLE {shop}.users ADD email VARCHAR(90) NOT NULL AFTER id")
    assert typed(page.command("models --check"))[0] == 0


def unplaced(text: str) -> str:
    """The message without what differs with each run."""
    return re.sub(r"update \S+|shard \S+|position [\d/]+", "", text).replace("\n", " ")


def read(source: Any, start: Any, shop: str) -> list[Update]:
    last, end = source.latest().order, start.order
    wanted = Selected(Filter.parse(None, [f"{shop}.*"]))
    found: list[Update] = []
    with closing(source.open(start)) as reader:
        while end < last:
            segment = reader.read(1 << 20, 10.0)
            end = segment.end
            found += wanted.of(segment)
    return found


def test_values_in_json(wormhole_kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    *_, program = Page("docs/models.md", {}).blocks("python")
    names: dict[str, Any] = {}
    exec(compile(program, "page", "exec", dont_inherit=True), names)
    schema = Schema("sessions", (Column("key", "bytes"),), (Column("value", "bytes"),))
    put = Change(schema, encode_row(Op.UPSERT, [b"k"], after=[b'{"user": 7, "total": 0.10, "pages": ["/"]}']))
    flow = wormhole_kit.attach(names["Sessions"](), retry=1)
    flow.commit(put, replace(put, row=encode_row(Op.DELETE, [b"k"])))
    assert capsys.readouterr().out.splitlines() == [
        "b'k' Session(user=7, total=Decimal('0.10'), pages=('/',))",
        "b'k' None",
    ]
