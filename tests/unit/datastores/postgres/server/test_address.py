"""URLs and addresses of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.server.address import parse, slot_name
from datastores.postgres.server.url import ServerUrl
from wormhole.model.errors import UsageError
from wormhole.ports.datastore import Login

# --- address ---


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


# --- url ---


def test_everything_that_a_url_may_say() -> None:
    url = ServerUrl.parse(
        "postgresql://a%40b:s%3Acret@[::1]:6432/my%20shop?sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/c&sslkey=/k"
        "&publication=My%20Pub&slot=w1"
    )
    assert (url.kind, url.user, url.password, url.host, url.port, url.database) == (
        "postgresql", "a@b", "s:cret", "::1", 6432, "my shop",
    )  # fmt: skip
    assert (url.sslmode, url.sslrootcert, url.sslcert, url.sslkey) == ("verify-full", "/ca.pem", "/c", "/k")
    assert (url.publication, url.slot) == ("My Pub", "w1")
    assert "cret" not in repr(url)


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", None),
        ("?sslrootcert=/c", "verify-full"),
        ("?sslcert=/c&sslkey=/k", "require"),
        ("?sslmode=allow", "allow"),
    ],
)
def test_the_mode_that_the_files_mean(query: str, mode: str | None) -> None:
    assert ServerUrl.parse(f"postgres://u@h/d{query}").sslmode == mode


def test_a_socket() -> None:
    url = ServerUrl.parse("postgres://u@/d?host=/run/postgresql")
    assert (url.host, url.socket) == ("", "/run/postgresql")


@pytest.mark.parametrize(
    "text",
    [
        "postgres:u@h/d",
        "mysql://u@h/d",
        "postgres://u:secret@h",
        "postgres://u:secret@h/",
        "postgres://u:secret@h/a/b",
        "postgres://u:secret@h/d#x",
        "postgres://u:secret@h:port/d",
        "postgres://u:secret@h/d?host=/run",
        "postgres://u:secret@/d?host=run",
        "postgres://u:secret@h/d?sslmode=on",
        "postgres://u:secret@h/d?sslmode=require&sslrootcert=/ca",
        "postgres://u:secret@h/d?sslmode=verify-ca",
        "postgres://u:secret@h/d?sslcert=/c",
        "postgres://u:secret@h/d?sslmode=prefer&sslcert=/c&sslkey=/k",
        "postgres://u:secret@h/d?slot=Big",
        "postgres://u:secret@h/d?unverified_server=yes",
        "postgres://u:secret@h/d?unverified_server=may-read-password&sslmode=verify-full",
        "postgres://u:secret@h/d?slot=",
        "postgres://u:secret@h/d?slot=a&slot=b",
        "postgres://u:secret@h/d?secret=1",
        "postgres://u:secret@h/d?sslrootcert=ca.pem",
        f"postgres://u:secret@h/{'d' * 64}",
        f"postgres://u:secret@h/d?publication={'p' * 64}",
    ],
)
def test_what_is_refused_without_the_password(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|may have|unknown option") as error:
        ServerUrl.parse(text)
    assert "secret" not in str(error.value)
