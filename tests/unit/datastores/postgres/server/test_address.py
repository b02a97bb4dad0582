from __future__ import annotations

from pathlib import Path

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.server.address import parse, slot_name
from wormhole.model.errors import UsageError
from wormhole.ports.datastore import Login

URL = "postgres://app@db:5432/shop"


@pytest.fixture
def pgpass(tmp_path: Path) -> Path:
    path = tmp_path / "pgpass"
    path.write_text("# db:5432:shop:app:comment\nshort:line\nother:*:*:*:no\ndb:*:shop:app:a\\:b\\\\c\n*:*:*:*:any\n")
    path.chmod(0o600)
    return path


def test_the_password_file_comes_first(tmp_path: Path, pgpass: Path) -> None:
    (tmp_path / "p").write_text("from file\n")
    (tmp_path / "p").chmod(0o644)
    address = parse(URL, "db1", password_file=tmp_path / "p", pgpass=pgpass)
    assert address.password == "from file"
    assert "chmod 600" in address.remarks[0]
    assert "from file" not in f"{address} {address!r}"
    with pytest.raises(UsageError, match="has a password"):
        parse("postgres://app:x@db/shop", "db1", password_file=tmp_path / "p")


def test_pgpass_as_libpq_reads_it(pgpass: Path) -> None:
    assert parse(URL, "db1", pgpass=pgpass).password == "a:b\\c"
    assert parse("postgres://app@elsewhere/shop", "db1", pgpass=pgpass).password == "any"
    assert parse("postgres://app:url@db/shop", "db1", pgpass=pgpass).password == "url"
    assert not parse(URL, "db1").password
    pgpass.chmod(0o640)
    address = parse(URL, "db1", pgpass=pgpass)
    assert not address.password
    assert "others may read it" in address.remarks[0]


def test_the_prompt_comes_last() -> None:
    asked: list[str] = []
    address = parse(URL, "db1", prompt=lambda question: asked.append(question) or "typed")  # type: ignore[func-returns-value]
    assert (address.password, asked) == ("typed", ["Password of app on db: "])


def test_an_account_is_needed() -> None:
    with pytest.raises(UsageError, match="names no user") as error:
        parse("postgres://db/shop", "db1")
    assert error.value.hint


@pytest.mark.parametrize(
    ("log", "name"), [("db1", "wormhole_db1"), ("Main-DB.x", "wormhole_main_db_x"), ("y" * 80, f"wormhole_{'y' * 31}")]
)
def test_the_names_on_the_server_come_from_the_log(log: str, name: str) -> None:
    assert slot_name(log) == name
    address = parse(URL, log)
    assert (address.publication, address.slot) == (name, name)


def test_the_url_may_name_them() -> None:
    address = parse(f"{URL}?publication=P&slot=s", "db1")
    assert (address.publication, address.slot) == ("P", "s")


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgres://a@/d?host=/run", "/run"),
        ("postgres://a@:5433/d?host=/run", "/run:5433"),
        ("postgres://a@h/d", "h:5432"),
        ("postgres://a@[::1]:5433/d", "[::1]:5433"),
    ],
)
def test_where_the_server_is_stays_in_a_configuration(url: str, where: str) -> None:
    assert parse(url, "l").where == where
    configured = DATASTORE.configured_url(url, Login())
    assert parse(configured, "l") == parse(url, "l")
    DATASTORE.check_url(configured, configured=True)


@pytest.mark.parametrize(
    ("url", "stays"),
    [
        (URL, False),
        ("postgres://a@localhost/d", True),
        ("postgres://a@[::1]/d", True),
        ("postgres://a@/d?host=/", True),
    ],
)
def test_whether_the_connection_leaves_the_host(url: str, stays: bool) -> None:
    assert parse(url, "l").stays_here == stays
