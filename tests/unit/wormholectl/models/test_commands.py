"""``wormholectl models`` without a server (with one: tests/integration/test_models.py), and the modules it writes."""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import BaseModel, TypeAdapter

from datastores.mysql.datastore import MySqlDatastore
from tests.support.command_line import run
from tests.support.seed import examples
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.models.texts import made_from, module

# --- commands: ``wormholectl models`` without a server; tests/integration/test_models.py has those ---


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


# --- texts ---


# Files that `make check` holds to their types.
MADE = Path(__file__).parent / "made_models"
STATES = tuple(f"a state with a long name, number {n}" for n in range(6))


def column(name: str, content: Content, *members: str, nullable: bool = False) -> ColumnDefinition:
    return ColumnDefinition(name, content, nullable, members)


EVERYTHING = TableDefinition(
    "shop.order_items",
    ("id", "class"),
    (
        column("id", Content.INTEGER),
        column("class", Content.TEXT),
        column("price", Content.DECIMAL, nullable=True),
        column("weight", Content.FLOAT),
        column("photo", Content.BYTES, nullable=True),
        column("day", Content.DATE),
        column("placed", Content.DATETIME, nullable=True),
        column("seen", Content.MOMENT, nullable=True),
        column("spent", Content.DURATION),
        column("notes", Content.JSON, nullable=True),
        column("state", Content.ENUM, "new", 'it\'s "old"', "a\nb"),
        column("stage", Content.ENUM, *STATES),
        column("marks", Content.SET, "a", "b", nullable=True),
        column("2fa", Content.INTEGER, nullable=True),
        column("int", Content.INTEGER),
        column("json", Content.TEXT),
        column("model_dump", Content.TEXT),
        column("a b", Content.TEXT),
        column("a-b", Content.TEXT),
    ),
)
USERS = TableDefinition("shop.users", ("id",), (column("id", Content.INTEGER), column("email", Content.TEXT)))
KEYLESS = TableDefinition("crm.users", (), (column("name", Content.TEXT, nullable=True),))
LITERAL = TableDefinition("shop.literal", ("id",), (column("id", Content.ENUM, "a"),))
TABLES = [KEYLESS, LITERAL, EVERYTHING, USERS]


def made(style: str, tables: list[TableDefinition] = TABLES, **options: Any) -> str:
    pydantic = style == "pydantic"
    return module(
        tables,
        command=f"wormholectl models server://db1 --style {style} -o models.py",
        source="server://db1",
        pydantic=pydantic,
        reserved=dir(BaseModel) if pydantic else (),
        **options,
    )


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"made_models_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # as an import does: annotations are looked up there
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("style", ["dataclass", "pydantic"])
def test_the_files_beside_this_one_are_what_is_written(style: str) -> None:
    """After a change: write what the command writes now into them."""
    assert made(style) == (MADE / f"of_{style}.py").read_text()


@pytest.mark.parametrize("style", ["dataclass", "pydantic"])
def test_the_classes_take_rows(style: str) -> None:
    classes = imported(MADE / f"of_{style}.py")
    row: dict[str, Any] = {
        "id": 1,
        "class": "x",
        "price": None,
        "weight": 0.5,
        "photo": b"",
        "day": "2024-01-02",
        "placed": None,
        "seen": "2024-01-02 03:04:05",
        "spent": "12:00:00",
        "notes": "[1]",
        "state": "a\nb",
        "stage": STATES[0],
        "marks": "b",
        "2fa": 2,
        "int": 3,
        "json": "j",
        "model_dump": "m",
        "a b": "1",
        "a-b": "2",
    }
    item = TypeAdapter(classes.OrderItems).validate_python(row)
    assert (item.class_, item.column_2fa, item.int_, item.a_b, item.a_b_2) == ("x", 2, 3, "1", "2")
    assert (item.notes, item.marks, item.state) == ([1], {"b"}, "a\nb")
    assert classes.__all__ == ["CrmUsers", "OrderItems", "ShopUsers", "TableLiteral"]
    own = classes.CrmUsers(name=None)
    with pytest.raises((AttributeError, ValueError), match=r"frozen|cannot assign"):
        own.name = "other"


def test_dates_may_stay_text() -> None:
    text = made("dataclass", text_dates=True)
    assert "    day: str\n    placed: str | None\n    seen: str | None\n    spent: dt.timedelta\n" in text


def test_a_module_says_what_it_was_made_from() -> None:
    found = made_from(made("dataclass"), "models.py")
    assert found.command == "wormholectl models server://db1 --style dataclass -o models.py"
    assert found.source == "server://db1"
    assert found.tables == {table.name: table.fingerprint for table in TABLES}


@pytest.mark.parametrize(
    "text", ["", "x = 1\n", "# Made by: x\n# source: y\n", '# source: y\n# table "\\x": 0123456789abcdef']
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"other\.py was not written by"):
        made_from(text, "other.py")


def test_a_fingerprint_is_that_of_what_the_class_depends_on() -> None:
    id_, email = USERS.columns
    others = [
        replace(USERS, name="shop.people"),
        replace(USERS, key=()),
        replace(USERS, columns=(email, id_)),
        replace(USERS, columns=(id_, replace(email, nullable=True))),
        replace(USERS, columns=(id_, replace(email, content=Content.BYTES))),
        replace(USERS, columns=(id_, replace(email, members=("a",)))),
    ]
    assert len({table.fingerprint for table in [USERS, *others]}) == 7
    assert replace(USERS).fingerprint == USERS.fingerprint == "7dc551f2d5165b15"


NAMES = st.one_of(
    st.text(min_size=1, max_size=8),
    st.sampled_from(
        ["class", "None", "int", "Decimal", "model_config", "_id", "__init__", "1", "ä ö", '"""', "\\", "a\n"]
    ),
)


@examples(30)
@given(st.lists(st.tuples(NAMES, st.lists(NAMES, min_size=1, max_size=4, unique=True)), min_size=1, max_size=3))
@pytest.mark.parametrize("style", ["dataclass", "pydantic"])
def test_no_name_of_a_database_becomes_code(style: str, named: list[tuple[str, list[str]]]) -> None:
    """The module has the classes with their fields and nothing else, and its header has every table."""
    tables = [
        TableDefinition(
            f"{n}{name}.{name}",
            tuple(columns[:1]),
            tuple(column(one, Content.ENUM, name, nullable=True) for one in columns),
        )
        for n, (name, columns) in enumerate(named)
    ]
    text = made(style, tables)
    tree = ast.parse(text)
    assert {type(node) for node in tree.body} <= {ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.ClassDef}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len({one.name for one in classes}) == len(tables)
    for node, table in zip(classes, tables, strict=True):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        assert len({one.target.id for one in fields if isinstance(one.target, ast.Name)}) == len(table.columns)
        assert len(node.body) - len(fields) == (2 if style == "pydantic" else 1)
    assert made_from(text, "x").tables == {table.name: table.fingerprint for table in tables}
    written = sys.modules["made"] = ModuleType("made")
    exec(compile(text, "made", "exec"), written.__dict__)
    for node, table in zip(classes, tables, strict=True):
        made_class: Any = getattr(written, node.name)
        known = made_class.model_fields if style == "pydantic" else made_class.__dataclass_fields__
        assert len(known) == len(table.columns)
