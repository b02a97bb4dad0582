"""docs/postgres.md, followed from the account to a running publisher, and back."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.eventually import until
from tests.support.pages import Page, Reader
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer

_PROGRAM = """\
from subscriber_sdk import Subscriber, run


class Printing(Subscriber):
    def on_update(self, update):
        print(update.op.value, update.table, *update.key, flush=True)


run(Printing(), application="cache", id="cache-1", coordinator="shop.toml")
"""
ROLE = "reader_of_the_page"


@pytest.fixture
def page(postgres_server: PostgresServer, postgres_database: str, tmp_path: Path) -> Page:
    (tmp_path / "db1.password").write_text("a long password")
    (tmp_path / "admin.password").write_text("no password is asked for")
    for file in tmp_path.glob("*.password"):
        file.chmod(0o600)
    return Page(
        "docs/postgres.md",
        {
            "db1:5432/shop": f"{postgres_server.host}:{postgres_server.port}/{postgres_database}",
            "wormhole@": f"{ROLE}@",
            "TO wormhole": f"TO {ROLE}",
            "ROLE wormhole": f"ROLE {ROLE}",
            "--log db1": f"--log {postgres_database}",
            "logs.db1": f"logs.{postgres_database}",
            "/var/lib/wormhole": str(tmp_path / "state"),
            "127.0.0.1:7400": f"127.0.0.1:{free_port()}",
        },
    )


def test_it_leads_from_an_account_to_updates_and_back(
    postgres_server: PostgresServer, postgres_database: str, page: Page, tmp_path: Path
) -> None:
    reader = Reader(tmp_path)

    def sql(*statements: str) -> list[tuple[object, ...]]:
        return postgres_server.sql(*statements, database=postgres_database)

    wal_level, limit, role, shown = page.blocks("sql")
    assert (wal_level, "max_slot_wal_keep_size" in limit) == ("ALTER SYSTEM SET wal_level = 'logical';\n", True)
    sql("CREATE TABLE users (id int PRIMARY KEY, name text)", *filter(None, map(str.strip, role.split(";"))))
    try:
        printed = reader.shell(f"{page.command('objects create')} --yes")
        name = f"wormhole_{postgres_database}"
        as_shown = shown.replace("wormhole_db1", name)
        for line in as_shown.splitlines():
            assert re.sub(r"pg_c.*", "pg_c", line.strip()) in printed  # newer servers have other statements for slots
        assert "0 problems" in reader.shell(f"{page.command('doctor')}")
        assert "tailing postgres:" in reader.shell(f"{page.command('tail')} --no-follow")
        (configuration,) = page.blocks("toml")
        (tmp_path / "shop.toml").write_text(configuration)
        (tmp_path / "cache.py").write_text(_PROGRAM)
        with (
            reader.running(sys.executable, "cache.py") as application,
            reader.running("sh", "-c", "exec wormholectl publisher run -c shop.toml") as publisher,
        ):
            publisher.says("flows given away")
            sql("INSERT INTO users VALUES (7, 'Ada')")
            application.says("insert public.users 7")
        drop = f"{page.command('objects drop')} --yes"
        slots = f"SELECT 1 FROM pg_replication_slots WHERE database = '{postgres_database}' AND temporary"
        until(lambda: not sql(slots), "a reader is left")
        assert reader.shell(drop).endswith("dropped\n")
        assert not sql(f"SELECT 1 FROM pg_replication_slots WHERE database = '{postgres_database}'")
        assert not sql("SELECT 1 FROM pg_publication")
    finally:
        sql(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")
