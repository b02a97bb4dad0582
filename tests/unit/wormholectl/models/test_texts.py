"""The modules that ``wormholectl models`` writes. Two of them are files beside this one, so that `make check` holds
them to mypy and pyright, both strict, and to the formatter."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import BaseModel, TypeAdapter

from wormhole.model.errors import UsageError
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormholectl.models.texts import made_from, module

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


@settings(max_examples=60)
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
