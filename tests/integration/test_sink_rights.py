"""The rights that docs/sink-sql.md names for an account in MySQL and MariaDB are enough, and each of them is needed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from scripts.prepare import ROOT
from sinks.sql.kind import MYSQL
from sinks.sql.settings import SqlSettings
from subscriber_sdk import HandlerFailed
from subscriber_sdk.testing import Kit, read, update
from wormhole.model.errors import TargetRefused

pytestmark = pytest.mark.allow_blocking  # the kit calls the handler on its loop

T = "shop.orders"
(RIGHTS,) = re.findall(r"^GRANT (.*) ON archive\.\*", (ROOT / "docs" / "sink-sql.md").read_text(), re.MULTILINE)


@contextmanager
def account(server: DatabaseServer, rights: str) -> Iterator[tuple[str, str]]:
    """A database, and an account with these rights on it and no others."""
    name, user = (f"{kind}_{uuid.uuid4().hex[:8]}" for kind in ("archive", "w"))
    server.sql(f"CREATE DATABASE {name}")
    server.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'open-sesame'")
    server.sql(f"GRANT {rights} ON {name}.* TO {user}@'%'")
    try:
        yield name, user
    finally:
        server.sql(f"DROP USER {user}@'%'")
        server.sql(f"DROP DATABASE {name}")


def mirrored(kit: Kit, server: DatabaseServer, rights: str, folder: Path) -> int:
    """Everything that a mirror does, and then a comparison. Returns how many rows were compared and are equal."""
    with account(server, rights) as (name, user):
        (folder / "password").write_text("open-sesame")
        url = f"{server.flavour}://{user}@{server.host}:{server.port}/{name}"
        settings = SqlSettings.model_validate({"url": url, "password_file": str(folder / "password")})
        flow = kit.attach(MYSQL.open("archive", settings).subscriber)
        flow.commit(update(T, key=1, after={"text": "a"}), update(T, key=2, after={"text": "a"}))
        flow.commit(update(T, key=1, before={"text": "a"}, after={"text": "b"}), update(T, key=2, before={"text": "a"}))
        flow.commit(update(T, key=1, before={"text": "b"}, after={"text": "b", "n": 1}))
        flow.commit(update(T, key=3, after={"text": "c", "n": 2}))
        rows = [read(T, key=1, after={"text": "b", "n": 1}), read(T, key=3, after={"text": "c", "n": 2})]
        flow.backfill(T, rows)
        result = flow.verify(T, rows, repair=True)
        return result.compared - result.differs - result.missing - result.extra


def test_the_rights_on_the_page_are_enough(database_server: DatabaseServer, tmp_path: Path, wormhole_kit: Kit) -> None:
    assert mirrored(wormhole_kit, database_server, RIGHTS, tmp_path) == 2


@pytest.mark.parametrize("missing", RIGHTS.split(", "))
def test_each_right_on_the_page_is_needed(
    database_server: DatabaseServer, tmp_path: Path, wormhole_kit: Kit, missing: str
) -> None:
    rights = ", ".join(right for right in RIGHTS.split(", ") if right != missing)
    with pytest.raises(HandlerFailed) as failed:
        mirrored(wormhole_kit, database_server, rights, tmp_path)
    assert isinstance(failed.value.__cause__, TargetRefused)
    assert failed.value.__cause__.code == "account-lacks-rights"
