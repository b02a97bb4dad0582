from __future__ import annotations

import fnmatch
import sys
import tomllib
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk.testing import Kit
from wormhole.config import CoordinatorForm, parse
from wormhole.model.findings import SeenTable
from wormholectl.init.texts import Project, configuration, example_of, handler_test, name_from, subscriber

NASTY = 'we"[ir]d*\n\'\'\'"""\\ {名} \x7f😀'
PROJECTS = [
    Project("store", "cache", "rocksdb:///var/lib/shop/store", tables=["default", "users"], example="users"),
    Project(
        "shop", "cache", "mysql://wormhole@db1:3306", "shop", ["shop.log", "shop.users"], "shop.users", "shop.password"
    ),
    Project("db1", "my.app", "mariadb://wormhole@db1:3306", password_file="/run/secrets/db1"),
    Project(
        "we-ird", "cache", "mysql://w%20h@db1/?socket=/run/s", NASTY, [f"{NASTY}.{NASTY}"], NASTY, f"{NASTY}/password"
    ),
    Project("x", "cache", "rocksdb:///var/lib/%22%0A%20store", tables=[NASTY], example=NASTY),
]
PROJECTS += [replace(one, existing=True) for one in PROJECTS]
each = pytest.mark.parametrize(
    "project", PROJECTS, ids=lambda project: f"{project.name}{'-existing' * project.existing}"
)


@each
def test_the_configuration_is_right_and_says_what_was_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["wormhole.config.load"], "reads_existing_rows", lambda kind: True)
    config = parse(configuration(project), project.toml, folder=Path("/srv"))
    assert config.form is CoordinatorForm.STATIC
    log = config.datasets[project.name].copies["main"].logs["db1"]
    assert log.source == project.source
    assert log.password_file == (Path("/srv", project.password_file) if project.password_file else None)
    assert config.publisher.state_dir == Path("/srv/.wormhole", project.name, "state")
    (application,) = config.applications.values()
    assert (application.name, application.dataset) == (project.application, project.name)
    assert application.subscribers == {"one": project.listen}
    assert application.start == ("existing" if project.existing else "latest")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("mysql://u@db1:3306", True),
        ("mysql://u@db1:3306/?unverified_server=may-read-password", True),
        ("mysql://u@db1:3306/?tls=require", True),
        ("mysql://u@db1:3306/?tls=verify-ca", False),
        ("mysql://u@db1:3306/?ca=/ca.pem", False),
        ("mysql://u@db1:3306/?server_public_key=/k.pem", False),
        ("mysql://u@127.0.0.1:3306", False),
        ("mysql://u@localhost/?socket=/s", False),
        ("rocksdb:///var/lib/store", False),
    ],
)
def test_the_line_that_verifies_a_server_is_there_to_be_taken(source: str, shown: bool) -> None:
    text = configuration(Project("shop", "cache", source, password_file="" if source[0] == "r" else "p"))
    assert ('# source = "mysql://u@db1:3306/?tls=verify&ca=/path/of/ca.pem"' in text) is shown


@each
def test_the_tables_chosen_are_the_databases_and_no_others(project: Project) -> None:
    (application,) = tomllib.loads(configuration(project))["applications"].values()
    patterns = application.get("tables", ["*"])
    for table in project.tables:
        assert any(fnmatch.fnmatchcase(table, pattern) for pattern in patterns)
    assert any(fnmatch.fnmatchcase("other.users", pattern) for pattern in patterns) is not bool(project.database)


def test_the_example_is_a_small_table_with_a_key() -> None:
    unfit = [
        SeenTable("shop", "audit_log", key_columns=0, rows=1),
        SeenTable("shop", "schema_migrations", rows=2),
        SeenTable("shop", "users_roles", key_columns=2, rows=3),
        SeenTable("shop", "empty", rows=0),
        SeenTable("shop", "orders", rows=90_000),
    ]
    users = SeenTable("shop", "users", rows=500)
    assert example_of([*unfit, users]) == users
    assert example_of(unfit) == unfit[-1]
    assert example_of(unfit[:2]) == unfit[1]
    assert example_of(unfit[:1]) == unfit[0]
    assert example_of([]) is None


@pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")
@each
def test_the_test_passes_as_written(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    program = types.ModuleType("subscriber")
    tests: dict[str, Any] = {}
    exec(compile(subscriber(project), "subscriber.py", "exec"), vars(program))
    monkeypatch.setitem(sys.modules, "subscriber", program)
    exec(compile(handler_test(project), "test_subscriber.py", "exec"), tests)
    assert not project.example or tests["TABLE"] == project.example
    functions = [function for name, function in tests.items() if name.startswith("test_")]
    assert len(functions) == (2 if not project.existing else 3 if project.of_bytes else 4)
    for function in functions:
        kit = Kit()
        function(kit)
        kit.close()


@pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")
@each
def test_the_test_fails_for_a_program_that_keeps_what_is_stale(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = types.ModuleType("subscriber")
    tests: dict[str, Any] = {}
    text = subscriber(project).replace("self.cache.", "dict().").replace(".pop(", ".get(")
    text = text.replace('"DELETE FROM rows', '"SELECT * FROM rows').replace(
        "REPLACE INTO rows", "INSERT OR IGNORE INTO rows"
    )
    exec(text.replace("if before.keys() - types.keys()", "if False"), vars(program))
    monkeypatch.setitem(sys.modules, "subscriber", program)
    exec(handler_test(project), tests)
    for name in [name for name in tests if name.startswith("test_")]:
        kit = Kit()
        with pytest.raises(AssertionError):
            tests[name](kit)
        kit.close()


@each
def test_the_program_names_the_configuration_beside_it(project: Project) -> None:
    text = subscriber(project)
    assert f'"{project.toml}"' in text
    assert f'application="{project.application}"' in text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("shop", "shop"),
        ("my shop; 2", "my-shop-2"),
        ("../../etc", "etc"),
        ("-x", "x"),
        ("магазин", "mysql"),
        ("", "mysql"),
        ("a" * 70, "a" * 64),
    ],
)
def test_names(text: str, name: str) -> None:
    assert name_from(text, "mysql") == name
