"""``wormholectl capture`` in SQLite databases, and what it refuses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from datastores.sqlite import changes
from datastores.sqlite.database import connect
from publisher.sources import open_source
from tests.support.command_line import run
from wormhole.model.errors import WormholeError
from wormhole.model.sharding import Sharding
from wormholectl.exit_codes import BROKEN

TABLES = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, number TEXT UNIQUE, open INTEGER);
CREATE TABLE lines (order_id INTEGER NOT NULL, nr INTEGER NOT NULL, what TEXT, PRIMARY KEY (order_id, nr))
    WITHOUT ROWID;
CREATE TABLE notes (text TEXT);
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript(TABLES)
    connection.close()
    return path


def schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    connection.close()
    return found


def test_everything_that_is_installed_is_removed_again(database: Path) -> None:
    before, url = schema(database), f"sqlite://{database}"
    code, out, err = run("capture", "install", url, "--all")
    assert (code, "CREATE TRIGGER" in out, "--yes" in err, schema(database)) == (2, True, True, before)
    code, out, _ = run("capture", "install", url, "--tables", "orders", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "made")
    first = schema(database)
    assert run("capture", "install", url, "--tables", "orders,ord*", "--yes")[:2] == (0, "nothing is missing\n")
    code, out, _ = run("capture", "show", url)
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["lines", "not"],
        ["notes", "cannot"],
        ["orders", "captured"],
    ]
    assert run("capture", "install", url, "--all", "--yes")[0] == 0
    assert {name for name, _ in first} < {name for name, _ in schema(database)}
    code, out, err = run("capture", "remove", url, "--yes")
    assert (code, out.splitlines()[-1], schema(database)) == (0, "removed", before)
    assert run("capture", "remove", url, "--yes")[:2] == (0, "nothing is there\n")


def test_a_key_that_grows_and_triggers_that_were_dropped(database: Path) -> None:
    url = f"sqlite://{database}"
    run("capture", "install", url, "--tables", "orders", "--yes")
    connection = sqlite3.connect(database)
    (trigger,) = connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%_delete'").fetchone()
    connection.execute(f"DROP TRIGGER {trigger}")
    assert "captured in part" in run("capture", "show", url)[1]
    assert f"{trigger}" not in "".join(name for name, _ in schema(database))
    code, out, _ = run("capture", "install", url, "--tables", "lines", "--yes")
    assert (code, "ADD COLUMN k2" in out) == (0, True)
    assert "captured in part" not in run("capture", "show", url)[1]
    connection.execute("INSERT INTO lines VALUES (1, 2, 'x')")
    connection.commit()
    assert connection.execute("SELECT k1, k2 FROM wormhole_change ORDER BY seq DESC LIMIT 1").fetchone() == (1, 2)
    connection.close()


def test_a_named_table_that_cannot_be_captured_is_an_error_and_the_others_are_made(database: Path) -> None:
    code, out, err = run("capture", "install", f"sqlite://{database}", "--tables", "notes,orders", "--yes")
    assert (code, "made" in out, "notes (it has no primary key" in err) == (BROKEN, True, True)
    assert run("capture", "install", f"sqlite://{database}", "--all", "--yes")[0] == 0, "notes was not asked for"


@pytest.mark.parametrize("arguments", [[], ["--all", "--tables", "orders"]])
def test_the_tables_have_to_be_named(database: Path, arguments: list[str]) -> None:
    assert run("capture", "install", f"sqlite://{database}", *arguments)[0] == 2


def test_what_can_be_captured_is_not_what_objects_are_for(database: Path) -> None:
    code, _, err = run("objects", "create", f"sqlite://{database}")
    assert (code, "wormholectl capture" in err) == (2, True)
    code, _, err = run("capture", "show", "rocksdb:///var/lib/shop")
    assert (code, "nothing is captured in RocksDB" in err) == (2, True)


def test_one_clear_error_for_each_bad_file(database: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is no database at all, but text of more than hundred bytes " * 5)
    for path, code in (
        (tmp_path / "none.db", "source-unavailable"),
        (text, "peer-not-database"),
        (database, "objects-missing"),
    ):
        source = open_source(f"sqlite://{path}", log="log", state_dir=tmp_path / "state", sharding=Sharding("log"))
        with pytest.raises(WormholeError) as error:
            source.start()
        source.stop()
        assert (error.value.code, bool(error.value.hint)) == (code, True)


def test_a_file_that_cannot_be_written_is_refused(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{database}"
    run("capture", "install", url, "--all", "--yes")
    monkeypatch.setattr(changes, "connect", lambda path, write: connect(path))  # SQLite opens it for reading only
    source = open_source(url, log="log", state_dir=tmp_path / "state", sharding=Sharding("log"))
    with pytest.raises(WormholeError) as error:
        source.start()
    source.stop()
    assert (error.value.code, bool(error.value.hint)) == ("file-unwritable", True)
