"""``wormholectl models`` without a server; tests/integration/test_models.py has those."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql.datastore import MySqlDatastore
from tests.support.command_line import run
from wormhole.model.errors import SourceUnavailable
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.ports.datastore import Login

ID, EMAIL = ColumnDefinition("id", Content.INTEGER, False), ColumnDefinition("email", Content.TEXT, True)
SERVER = "mariadb://app@db1:3306"


class Server:
    """``asked``: the URL and the password file of each question."""

    def __init__(self) -> None:
        self.tables = [
            TableDefinition(name, ("id",), (ID, EMAIL)) for name in ("crm.users", "shop.orders", "shop.users")
        ]
        self.asked: list[tuple[str, Path | None]] = []

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> list[TableDefinition]:
        self.asked.append((url, login.password_file))
        return [table for table in self.tables if wanted(table.name)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(MySqlDatastore, "describe", lambda _, *given: server.describe(*given))
    return server


def test_it_prints_a_module_of_all_tables(server: Server) -> None:
    code, out, err = run("models", SERVER)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("class")] == [
        "class CrmUsers:",
        "class Orders:",
        "class ShopUsers:",
    ]
    assert out.startswith(f"# Made by: wormholectl models {SERVER}\n")
    compile(out, "models", "exec")


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        ([f"{SERVER}/shop"], ["Orders", "Users"]),
        ([SERVER, "-t", "shop.o*", "-t", "crm.users"], ["Users", "Orders"]),
        ([f"{SERVER}/shop", "-t", "users"], ["Users"]),
        ([f"{SERVER}/%5Bs%5Dhop"], None),
    ],
)
def test_the_tables_are_chosen(words: list[str], classes: list[str] | None, server: Server) -> None:
    code, out, err = run("models", *words)
    if classes is None:
        assert (code, out) == (2, "")
        assert "has no table that matches [[]s]hop.*" in err
    else:
        assert [line[6:-1] for line in out.splitlines() if line.startswith("class")] == classes


def test_no_column_hides_what_pydantic_s_classes_have(server: Server) -> None:
    server.tables = [replace(server.tables[0], columns=(ID, replace(EMAIL, name="register")))]
    _, out, _ = run("models", SERVER, "--style", "pydantic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(out, "models", "exec"), {"__name__": __name__})


def test_a_file_is_made_checked_and_made_again(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    words = ["models", f"{SERVER}/shop", "--style", "pydantic", "--text-dates", "-o", str(file)]
    code, out, _ = run(*words)
    assert (code, out) == (0, f"wrote {file}: 2 tables: shop.orders, shop.users\n")
    assert run("models", "--check", str(file)) == (0, f"{file}: no table changed (2 compared)\n", "")
    assert [url.rstrip("/") for url, _ in server.asked] == [SERVER, SERVER]
    orders = server.tables[1]
    server.tables[1] = replace(orders, columns=(ID, replace(EMAIL, nullable=False)))
    del server.tables[2]
    code, out, err = run("models", "--check", str(file))
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "shop.orders: changed",
        "shop.users: not there, or the account may not see it",
        f"  next: wormholectl {' '.join(words)}",
    ]
    assert run(*words)[0] == 0
    assert run("models", "--check", str(file), SERVER)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["models.py"]


def test_an_application_has_its_tables_and_password(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "shop.toml"
    config.write_text(
        "version = 1\n[coordinator]\nstatic = true\n"
        f"[datasets.shop.copies.main.logs.db1]\nsource = '{SERVER}'\npassword_file = 'db1.password'\n"
        "[applications.cache]\ndataset = 'shop'\nstart = 'latest'\ntables = ['shop.users']\n"
        "subscribers = { one = '127.0.0.1:7400' }\n"
    )
    file = tmp_path / "models.py"
    assert run("models", "cache", "-c", str(config), "-o", str(file)) == (0, f"wrote {file}: 1 table: shop.users\n", "")
    assert server.asked == [(SERVER, tmp_path / "db1.password")]
    assert file.read_text().startswith(f"# Made by: wormholectl models cache -c {config} -o {file}\n")
    assert run("models", "--check", str(file), "-c", str(config))[0] == 0
    assert server.asked[1:] == server.asked[:1]
    code, out, err = run("models", "--check", str(file))
    assert (code, out) == (2, "")
    assert (
        f"error [wrong-request]: {file} was made for the application cache\n"
        "  next: give its configuration with -c FILE.toml" in err
    )
    file.write_text(file.read_text().replace("# application: cache\n", ""))
    assert f"{file} was made for no application" in run("models", "--check", str(file), "-c", str(config))[2]
    assert run("models", "--check", str(file), "cache", "-c", str(config))[0] == 0


def test_an_application_s_columns_and_masks_count(server: Server, tmp_path: Path) -> None:
    server.tables = [
        TableDefinition(
            "shop.users",
            ("id",),
            (
                ID,
                EMAIL,
                ColumnDefinition("plan", Content.ENUM, False, ("free", "paid")),
                ColumnDefinition("age", Content.INTEGER, False),
                ColumnDefinition("born", Content.DATE, False),
            ),
        )
    ]
    config, file = tmp_path / "shop.toml", tmp_path / "models.py"
    text = (
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nmask_key_file = 'mask.key'\n"
        f"[datasets.shop.copies.main.logs.db1]\nsource = '{SERVER}'\n[applications.cache]\ndataset = 'shop'\n"
        "start = 'latest'\nsubscribers = { one = '127.0.0.1:7400' }\ncolumns = ['plan', 'age', 'born']\n"
    )
    config.write_text(text + "mask = { plan = 'hash', age = 'null' }\n")
    assert run("models", "cache", "-c", str(config), "-o", str(file))[0] == 0
    assert file.read_text().endswith("    id: int\n    plan: str\n    age: int | None\n    born: dt.date\n")
    assert run("models", "--check", str(file), "-c", str(config))[0] == 0
    config.write_text(text)
    code, out, _ = run("models", "--check", str(file), "-c", str(config))
    assert (code, out.splitlines()[0]) == (1, "shop.users: changed")
    config.write_text(text + "mask = { id = 'hash' }\n")
    code, out, err = run("models", "--check", str(file), "-c", str(config))
    assert (code, out) == (2, "")
    assert "mask: id names id, a column of the key of shop.users" in err


def test_a_password_is_written_nowhere(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    code, out, _ = run("models", "mariadb://app:geheim@db1:3306/shop", "-o", str(file))
    assert code == 0
    assert "geheim" not in out + file.read_text()
    assert "app@db1:3306" in file.read_text()


def test_a_file_of_somebody_else_stays(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    file.write_text("x = 1\n")
    for words in (["models", SERVER, "-o", str(file)], ["models", "--check", str(file)]):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert f"{file} was not written by `wormholectl models`" in err
    assert file.read_text() == "x = 1\n"
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "which tables?"),
        (["rocksdb:///store"], "RocksDB does not describe what its values hold"),
        (["nonsense"], "'nonsense' names no log"),
        ([SERVER, "-t", "shop.none"], f"{SERVER} has no table that matches shop.none"),
        ([f"{SERVER}/shop", "-t", "crm.users"], "--table 'crm.users' is not in it"),
        ([SERVER, "--log", "a/b/c"], "--log chooses among the logs of an application"),
        ([SERVER, "-o", "/nowhere/models.py"], "/nowhere/models.py cannot be written: No such file or directory"),
        (["--check", "/nowhere/models.py"], "/nowhere/models.py cannot be read: No such file or directory"),
        (["--check", "/bin/sh"], "/bin/sh cannot be read: it is no text"),
        (["--check", "models.py", "-t", "x"], "--check writes nothing"),
        ([SERVER, "--style", "attrs"], "attrs"),
    ],
)
def test_a_wrong_request_has_one_message(words: list[str], reason: str, server: Server) -> None:
    code, out, err = run("models", *words)
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("error [") <= 1


def test_a_pattern_without_a_database_has_its_own_next_step(server: Server) -> None:
    _, _, err = run("models", SERVER, "-t", "users")
    assert "next: users has no database: write '*.users', or DATABASE.users" in err
    _, _, err = run("models", SERVER, "-t", "shop.none")
    assert "next: `wormholectl doctor URL` shows" in err


def test_a_server_that_is_away_is_one_message(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "models.py"
    assert run("models", SERVER, "-o", str(file))[0] == 0

    def away(*given: Any) -> Any:
        raise SourceUnavailable("db1:3306: Connection refused", hint="check that the server runs")

    monkeypatch.setattr(server, "describe", away)
    assert run("models", "--check", str(file)) == (
        3,
        "",
        "error [source-unavailable]: db1:3306: Connection refused\n  next: check that the server runs\n",
    )
