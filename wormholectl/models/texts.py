"""Makes the Python module that ``wormholectl models`` writes, and parses it for ``--check``.

Pure. Names from a database must not become code. So each is written as a string literal, as an identifier made from it,
or with its control characters escaped.
"""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wormhole.model.errors import UsageError
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.model.visible import visible

__all__ = ["Made", "made_from", "module"]

_WIDTH: Final = 120
_FIRST: Final = "# Made by: "
_SOURCE: Final = "# source: "
_APPLICATION: Final = "# application: "
_TABLE: Final = "# table "
_ENTRY: Final = re.compile(re.escape(_TABLE) + r"(?P<name>\".*\"): (?P<fingerprint>[0-9a-f]{16})")

_PLAIN: Final = {
    Content.INTEGER: "int",
    Content.BOOLEAN: "bool",
    Content.DECIMAL: "Decimal",
    Content.FLOAT: "float",
    Content.TEXT: "str",
    Content.BYTES: "bytes",
    Content.DATE: "dt.date",
    Content.DATETIME: "dt.datetime",
    Content.MOMENT: "Annotated[dt.datetime, InUtc]",
    Content.DURATION: "dt.timedelta",
    Content.JSON: "Json[Any]",
}
_DATES: Final = frozenset({Content.DATE, Content.DATETIME, Content.MOMENT})
# A name that the module may use, and the import that provides it.
_IMPORTS: Final = (
    ("dt.", "import datetime as dt"),
    ("@dataclass", "from dataclasses import dataclass"),
    ("Decimal", "from decimal import Decimal"),
)
_TYPING: Final = ("Annotated", "Any", "Literal")
_PYDANTIC: Final = ("BaseModel", "ConfigDict", "Field", "Json")
_SDK: Final = ("InUtc", "SetNames")
# Names that annotations and decorators of the module use. Fields and classes must not have these names.
_TAKEN: Final = frozenset(
    {"int", "bool", "float", "str", "bytes", "frozenset", "dt", "dataclass", "Decimal", "annotations"}
    | {*_TYPING, *_PYDANTIC, *_SDK}
)


@dataclass(frozen=True, slots=True)
class Made:
    """The header of a written module: the command that made it, the URL of the log, the application that receives the
    tables (or empty), and the fingerprint of each table.
    """

    command: str
    source: str
    application: str
    tables: dict[str, str]


def module(
    tables: Sequence[TableDefinition],
    *,
    command: str,
    source: str,
    application: str = "",
    pydantic: bool = False,
    text_dates: bool = False,
    reserved: Iterable[str] = (),
) -> str:
    """The text of the module. ``text_dates``: dates stay text as in updates, because a zero date is not a valid date.
    ``reserved``: names that a field may not have.
    """
    taken = _TAKEN.union(reserved)
    names = _class_names(tables)
    body = [_class(table, names[table.name], taken, pydantic=pydantic, text_dates=text_dates) for table in tables]
    head = [
        f"{_FIRST}{visible(command)}",
        "# Do not edit: make it again. `wormholectl models --check FILE` reports the tables that changed since.",
        f"{_SOURCE}{visible(source)}",
        *([f"{_APPLICATION}{visible(application)}"] if application else []),
        *(f"{_TABLE}{json.dumps(table.name)}: {table.fingerprint}" for table in tables),
        '"""Models of tables."""',
        "",
        "from __future__ import annotations",
        "",
    ]
    head += _imports("\n".join(body))
    exported = ["__all__ = [", *(f"    {_literal(name)}," for name in sorted(names.values())), "]"]
    return "\n".join([*head, *exported, "", "", "\n\n\n".join(body), ""])


def made_from(text: str, name: str) -> Made:
    """Parse the header of the module ``text``. Raises :class:`~wormhole.model.errors.UsageError` for another file."""
    lines = text.splitlines()
    command, source, application = (
        next((line.removeprefix(begin) for line in lines if line.startswith(begin)), "")
        for begin in (_FIRST, _SOURCE, _APPLICATION)
    )
    found = [entry for line in lines if (entry := _ENTRY.fullmatch(line))]
    try:
        tables = {str(json.loads(entry["name"])): entry["fingerprint"] for entry in found}
    except ValueError:
        tables = {}
    if not source or not tables:
        raise UsageError(
            f"{name} was not written by `wormholectl models`, or its first lines were changed",
            hint="name another file, or make it again",
            code="output-exists",
        )
    return Made(command, source, application, tables)


def _imports(body: str) -> list[str]:
    """The import statements that ``body`` needs, in groups."""
    lines = [line for name, line in _IMPORTS if name in body]
    groups = []
    for package, known in (("typing", _TYPING), ("pydantic", _PYDANTIC), ("subscriber_sdk.models", _SDK)):
        used = [name for name in known if re.search(rf"(?<![\w\"]){name}(?![\w\"])", body)]
        if used:
            groups.append(f"from {package} import {', '.join(used)}")
    standard = [line for line in groups if line.startswith("from typing")]
    rest = [[line] for line in groups if line not in standard]
    return [text for group in ([*lines, *standard], *rest) if group for text in (*group, "")]


def _class(table: TableDefinition, name: str, taken: frozenset[str], *, pydantic: bool, text_dates: bool) -> str:
    fields = _unique((_identifier(column.name, taken) for column in table.columns), lambda text, n: f"{text}_{n}")
    key = f" Key: {', '.join(table.key)}." if table.key else " Without a key."
    lines = [f"    {_docstring(f'Table {table.name}.{key}')}", ""]
    if pydantic:
        options = ["frozen=True"]
        options += ["validate_by_name=True"] * any(f != c.name for f, c in zip(fields, table.columns, strict=True))
        options += ["protected_namespaces=()"] * any(field.startswith("model_") for field in fields)
        lines = [f"class {name}(BaseModel):", *lines, f"    model_config = ConfigDict({', '.join(options)})", ""]
    else:
        lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:", *lines]
    for field, column in zip(fields, table.columns, strict=True):
        line = f"    {field}: {_annotation(column, field, text_dates)}"
        if len(line) > _WIDTH:
            line = f"    {field}: {_annotation(column, field, text_dates, wrapped=True)}"
        lines.append(line)
    return "\n".join(lines)


def _annotation(column: ColumnDefinition, field: str, text_dates: bool, *, wrapped: bool = False) -> str:
    """The annotation of a field. ``wrapped``: write each member of an ENUM or SET on a separate line."""
    if column.content in {Content.ENUM, Content.SET} and column.members:
        members = [_literal(member) for member in column.members]
        inside = "".join(f"\n        {member}," for member in members) + "\n    " if wrapped else ", ".join(members)
        text = f"Literal[{inside}]"
        if column.content is Content.SET:
            text = f"Annotated[frozenset[{text}], SetNames]"
    elif text_dates and column.content in _DATES:
        text = "str"
    else:
        text = _PLAIN.get(column.content, "str")
    if column.nullable:
        text += " | None"
    if field != column.name:
        text = f"Annotated[{text}, Field(validation_alias={_literal(column.name)})]"
    return text


def _class_names(tables: Sequence[TableDefinition]) -> dict[str, str]:
    """The class name of each table. It begins with the database if tables of several databases have the same name."""
    short = {table.name: _camel(table.name.rpartition(".")[2]) for table in tables}
    often = [*short.values()]
    names = [short[t.name] if often.count(short[t.name]) == 1 else _camel(t.name) for t in tables]
    return dict(zip(short, _unique(names, lambda text, n: f"{text}{n}"), strict=True))


def _camel(text: str) -> str:
    words = _words(text).split("_")
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name.isidentifier() and name not in _TAKEN and not keyword.iskeyword(name) else f"Table{name}"


def _identifier(text: str, taken: frozenset[str]) -> str:
    name = _words(text).lstrip("_")  # pydantic has no fields that begin with one
    name = name if name.isidentifier() else f"column_{name}".rstrip("_")
    return f"{name}_" if name in taken or keyword.iskeyword(name) else name


def _words(text: str) -> str:
    """``text`` in Python's normal form of names, with ``_`` for each character that a name may not contain."""
    return "".join(one if f"a{one}".isidentifier() else "_" for one in unicodedata.normalize("NFKC", text))


def _unique(names: Iterable[str], numbered: Callable[[str, int], str]) -> list[str]:
    """``names`` made unique: a repeated name gets a number."""
    found: dict[str, None] = {}
    wanted = list(names)
    for name in wanted:
        number, candidate = 2, name
        while candidate in found or (candidate != name and candidate in wanted):
            candidate, number = numbered(name, number), number + 1
        found[candidate] = None
    return list(found)


def _literal(text: str) -> str:
    """A Python string literal, in double quotes if possible."""
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in text else quoted


def _docstring(text: str) -> str:
    return f'"""{text}"""' if text.isprintable() and not {'"', "\\"} & set(text) else _literal(text)
