from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.config import parse
from wormhole.filters import Filter
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.lacking_columns import in_config, of_log, warnings


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


def test_a_server_that_does_not_answer_is_a_warning_of_the_configuration(tmp_path: Path) -> None:
    text = (
        "version = 1\ncoordinator.static = true\n[datasets.shop.copies.main.logs.db1]\n"
        f'source = "mysql://u@localhost/?socket={tmp_path}/none"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\nwhere = "{}"\n'
    )
    [line] = in_config(parse(text.replace("{}", "email is null"), "x.toml"))
    assert line.startswith("applications.cache.where: its columns were not compared with the tables: ")
    assert in_config(parse(text.replace("{}", "op == 'delete'"), "x.toml")) == [], "nothing to ask for"


def test_a_store_of_bytes_has_no_columns() -> None:
    assert of_log(Filter.parse("email is null"), "rocksdb:///none", Login()) == []
