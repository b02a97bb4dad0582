from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from wormhole.config import parse
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter, Projection
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import ConfigError
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.filters import lacking_columns
from wormholectl.filters.lacking_columns import in_config, no_table, of_log, unmatched, warnings


def table(name: str, *columns: str) -> TableDefinition:
    found = tuple(ColumnDefinition(column, Content.TEXT, nullable=True) for column in columns)
    return TableDefinition(name, ("id",), found)


USERS, LOG = table("shop.users", "id", "email"), table("shop.log", "id")


_CHOOSE = "choose the tables that have it, with `tables` or `table ==`"


@pytest.mark.parametrize(
    ("where", "lack", "fate", "step"),
    [
        ('email == "x"', "shop.log has no column email", "all its updates are delivered", _CHOOSE),
        ('email == "x" and op == "delete"', "shop.log has no column email", "the rest of the filter decides", _CHOOSE),
        (
            'emial == "x"',
            "shop.users, shop.log have no column emial",
            "all their updates are delivered",
            "did you mean email for emial?",
        ),
    ],
)
def test_which_tables_lack_what_and_what_becomes_of_their_updates(where: str, lack: str, fate: str, step: str) -> None:
    [line] = warnings(Filter.parse(where), [USERS, LOG])
    assert line == f"{lack}: that test is unknown there, which passes, so {fate}. Next: {step}"


def test_tables_that_the_filter_does_not_want_may_lack_its_columns() -> None:
    assert warnings(Filter.parse('table == "shop.users" and email == "x"'), [USERS, LOG]) == []
    assert warnings(Filter.parse("id == 1"), [USERS, LOG]) == []


def test_many_tables_are_counted() -> None:
    [line] = warnings(Filter.parse("email is null"), [USERS, *(table(f"shop.t{i}", "id") for i in range(9))])
    assert line.startswith("shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 4 more have no column email")


def test_columns_and_masks_that_name_no_column() -> None:
    projection = Projection.parse(["emial", "ID", "-city"], {"shop.log.email": "null", "email": "null"})
    assert list(unmatched(projection, [USERS, LOG])) == [
        ("columns", "emial names no column of 2 tables. Next: did you mean email?"),
        ("columns", "city names no column of 2 tables. Next: remove it from `columns`, or correct it"),
        ("mask", "shop.log.email names no column of 2 tables, so it hides nothing. Next: did you mean email?"),
    ]


def test_a_mask_on_a_key_is_refused_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    datastore = SimpleNamespace(capabilities=capabilities_of("mysql"), describe=lambda *_: [USERS, LOG])
    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: datastore)
    monkeypatch.setattr(lacking_columns, "installed", lambda found: nullcontext())
    config = (
        'version = 1\ncoordinator.static = true\n[datasets.shop.copies.main.logs.db1]\nsource = "mysql://u@localhost/"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\n'
    )
    with pytest.raises(
        ConfigError, match=r"applications\.cache\.mask: id names id, a column of the key of shop\.users"
    ):
        in_config(parse(config + 'mask = { id = "null" }', "x.toml"))
    assert in_config(parse(config + 'mask = { emial = "null" }\ncolumns = ["email"]', "x.toml")) == [
        "applications.cache.mask: emial names no column of 2 tables, so it hides nothing. Next: did you mean email?"
    ]


def test_a_server_that_does_not_answer_is_a_warning_of_the_configuration(tmp_path: Path) -> None:
    text = (
        "version = 1\ncoordinator.static = true\n[datasets.shop.copies.main.logs.db1]\n"
        f'source = "mysql://u@localhost/?socket={tmp_path}/none"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\nwhere = "{}"\n'
    )
    [line] = in_config(parse(text.replace("{}", "email is null"), "x.toml"))
    assert line.startswith("applications.cache.where: its columns were not compared with the tables: ")
    assert in_config(parse(text.replace("{}", "op == 'delete'"), "x.toml")) == [], "nothing to ask for"
    [line] = in_config(parse(text.replace("{}", "") + 'mask = { email = "null" }', "x.toml"))
    assert line.startswith("applications.cache.mask: its columns were not compared with the tables: ")


def test_a_store_of_bytes_has_no_columns() -> None:
    assert of_log(Filter.parse("email is null"), "rocksdb:///none", Login()) == []
    assert no_table(Filter.parse(None, ["shop.*"]), "rocksdb:///none", Login()) == []


def test_of_many_tables_those_that_the_filter_wants_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Server:
        capabilities = Capabilities(title="a server")
        requirement = "nothing"

        def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> list[TableDefinition]:
            names = [f"{database}.t{i}" for database in ("other", "shop") for i in range(300)]
            asked.extend(name for name in names if wanted(name))
            return [table(name, "id") for name in asked]

    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: Server())
    [line] = of_log(Filter.parse("email is null", ["shop.*"]), "server://h", Login())
    assert asked == [f"shop.t{i}" for i in range(200)]
    assert "and 195 more have no column email" in line


@pytest.mark.parametrize(
    ("where", "tables", "warned"),
    [
        (None, [], False),
        (None, ["shop.*"], False),
        (None, ["nosuch.*"], True),
        ('table == "shop.orders"', [], False),
        ('table == "shop.oders"', [], True),
        ("email is null", [], False),
    ],
)
def test_a_filter_on_tables_that_are_not_there(
    where: str | None, tables: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        capabilities = Capabilities(title="a server")

        def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> list[TableDefinition]:
            return [table(name, "id") for name in ("shop.users", "shop.orders") if wanted(name)]

    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: Server())
    wanted = Filter.parse(where, tables)
    says = (
        f"no table that this account may see fits {wanted.text}. Next: check the names; a table that is created later"
    )
    assert no_table(wanted, "server://h", Login()) == ([f"{says} is shown"] if warned else [])


def test_the_tables_of_the_copies_that_serve_an_application_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def describe(url: str, *_: object) -> list[TableDefinition]:
        asked.append(url)
        return [USERS, LOG]

    datastore = SimpleNamespace(capabilities=capabilities_of("mysql"), describe=describe)
    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: datastore)
    monkeypatch.setattr(lacking_columns, "installed", lambda found: nullcontext())
    logs = "".join(
        f'[datasets.shop.copies.{copy}.logs.db1]\nsource = "mysql://u@{copy}"\n' for copy in ("main", "west", "east")
    )
    text = (
        'version = 1\ncoordinator.zookeeper = "zk1:2181"\n[datasets.shop.failover]\ncopies = ["main", "west"]\n'
        f'{logs}[applications.cache]\ndataset = "shop"\nstart = "latest"\ncolumns = ["email"]\n'
    )
    in_config(parse(text, "x.toml"))
    in_config(parse(text + 'copy = "east"', "x.toml"))
    assert asked == ["mysql://u@main", "mysql://u@west", "mysql://u@east"]
