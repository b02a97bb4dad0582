"""docs/transactional.md: its programs count in real databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

import subscriber_sdk
from examples.demo.postgres_server import PostgresServer
from subscriber_sdk.testing import Kit, update
from tests.support.django_databases import set_default
from tests.support.pages import Page

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking
PAGE = "docs/transactional.md"
TABLE = "CREATE TABLE totals (customer INT PRIMARY KEY, orders INT NOT NULL)"
ROW = "INSERT INTO totals VALUES (7, 0)"
MODEL = """
from django.db import models

class Total(models.Model):
    customer = models.IntegerField(primary_key=True)
    orders = models.IntegerField()

    class Meta:
        db_table = "totals"
"""


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(TABLE)
        connection.execute(ROW)
    return path


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((found,),) = connection.execute("SELECT orders FROM totals")
    return int(found)


def count_twice(program: str, replaced: dict[str, str], kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the one program with this store. It gets two changes, and the first of them a second time."""
    (code,) = [block for block in Page(PAGE, replaced).blocks("python") if f"import {program}" in block]
    given: list[Any] = []
    monkeypatch.setattr(subscriber_sdk, "run", lambda subscriber, **_: given.append(subscriber))
    exec(compile(code, PAGE, "exec", dont_inherit=True), {"__name__": "__main__"})
    flow = kit.attach(given[0])
    flow.commit(update("shop.orders", key=7, after={"amount": 5}))
    flow.crash_and_redeliver(1)
    flow.commit(update("shop.orders", key=7, after={"amount": 1}))
    flow.revoke()


def test_psycopg(
    wormhole_kit: Kit, postgres_server: PostgresServer, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_server.sql(f"{TABLE}; {ROW}", database=postgres_database)
    at = f"postgres@{postgres_server.host}:{postgres_server.port}/{postgres_database}?sslmode=disable"
    count_twice("PsycopgStore", {"postgresql:///shop": f"postgresql://{at}"}, wormhole_kit, monkeypatch)
    assert postgres_server.sql("SELECT orders FROM totals", database=postgres_database) == [(2,)]


def test_sqlalchemy(wormhole_kit: Kit, sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_twice("SqlAlchemyStore", {"sqlite:///shop.db": f"sqlite:///{sqlite}"}, wormhole_kit, monkeypatch)
    assert orders(sqlite) == 2


def test_django(wormhole_kit: Kit, sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sqlite.parent / "shop").mkdir()
    (sqlite.parent / "shop" / "models.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(sqlite.parent))
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    set_default("sqlite3", str(sqlite))
    with override_settings(INSTALLED_APPS=["shop"]):
        count_twice("DjangoStore", {}, wormhole_kit, monkeypatch)
    assert orders(sqlite) == 2
