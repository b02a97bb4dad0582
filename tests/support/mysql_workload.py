"""Random tables and what is done to them: every column type, every kind of key, every row image."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import strategies as st

from tests.support.mysql_differential import Session, Table
from tests.support.mysql_types import TYPES, Type, of_flavour

INT: Final = next(kind for kind in TYPES if kind.name == "int")
_VARCHAR: Final = next(kind for kind in TYPES if kind.name == "varchar utf8mb4")
_GENERATED: Final = {
    "made": replace(_VARCHAR, name="stored", declared="VARCHAR(40) AS (CONCAT('n', n)) STORED", edges=()),
    "computed": replace(INT, name="virtual", declared="BIGINT AS (n + 1) VIRTUAL", edges=()),
}
_IMAGES: Final = ("FULL", "FULL", "MINIMAL", "NOBLOB")
_DOCUMENT: Final = {"a": [1, {"b": [1, 2, 3], "x y": 1}, [[1, 2], {"a": 1}]], "b": {"k": [], "$é": [1]}, "größe": "s"}
NESTED: Final = f"'{json.dumps(_DOCUMENT, ensure_ascii=False)}'"
"""A document with a place for each of `PATHS`."""


def _paths_below(node: object, path: str) -> Iterator[str]:
    """The places within a value, and those around its ends; a cell is counted from both ends."""
    match node:
        case dict():
            for name, value in (*node.items(), ("new", None)):
                named = f'{path}."{name}"'
                yield named
                yield from _paths_below(value, named)
        case list():
            for i, value in enumerate((*node, None)):
                for cell in (
                    f"{path}[{i}]",
                    f"{path}[last-{len(node) - 1 - i}]" if i < len(node) else f"{path}[last-9]",
                ):
                    yield cell
                    yield from _paths_below(value, cell)


PATHS: Final = tuple(dict.fromkeys(path.replace("[last-0]", "[last]") for path in _paths_below(_DOCUMENT, "$")))
_paths: Final = st.sampled_from(PATHS).map("'{}'".format)
_parts: Final = st.sampled_from(
    [
        "1.5e0",
        "'😀'",
        "NULL",
        "TRUE",
        "JSON_ARRAY(1, 2)",
        "JSON_OBJECT('a', JSON_ARRAY(1), 'x y', 2)",
        "REPEAT('l', 300)",
    ]
)


def changes_of_json(column: str) -> st.SearchStrategy[str]:
    """Expressions that the server logs as changes of the document, any number of them within each other."""
    pairs = st.lists(st.builds("{}, {}".format, _paths, _parts), min_size=1, max_size=3).map(", ".join)
    return st.recursive(
        st.just(column),
        lambda inner: (
            st.builds("JSON_SET({}, {})".format, inner, pairs)
            | st.builds("JSON_REPLACE({}, {})".format, inner, pairs)
            | st.builds("JSON_REMOVE({}, {})".format, inner, st.lists(_paths, min_size=1, max_size=3).map(", ".join))
        ),
        max_leaves=3,
    )


@dataclass(frozen=True)
class Workload:
    """A table, how its changes are logged, and transactions of statements.

    Column ``n`` tells rows apart for the statements."""

    table: Table
    image: str
    compressed: bool
    partial: bool
    transactions: tuple[tuple[str, ...], ...]

    def prepare(self, session: Session, flavour: str) -> None:
        """Create the table, and set how the session logs."""
        session.run(f"DROP TABLE IF EXISTS {self.table.name}", self.table.ddl())
        session.run(f"SET SESSION binlog_row_image = {self.image}")
        if flavour == "mysql":
            session.run(f"SET SESSION binlog_row_value_options = '{'PARTIAL_JSON' if self.partial else ''}'")
            session.run(f"SET SESSION binlog_transaction_compression = {int(self.compressed)}")
        else:
            session.run(f"SET GLOBAL log_bin_compress = {int(self.compressed)}")


def _value(kind: Type) -> st.SearchStrategy[str]:
    return st.just("NULL") | st.sampled_from(kind.edges) | kind.more


@st.composite
def _tables(draw: st.DrawFn, name: str, kinds: Sequence[Type]) -> Table:
    drawn = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8))
    columns = {f"c{i}": kind for i, kind in enumerate(drawn)}
    keys = ["n", *(column for column, kind in columns.items() if kind.key)]
    key = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))
    hidden = [column for column in columns if column not in key and draw(st.integers(0, 9)) == 0]
    columns = {c: replace(t, declared=f"{t.declared} INVISIBLE") if c in hidden else t for c, t in columns.items()}
    columns = {**dict(list(columns.items())[:2]), "n": INT, **dict(list(columns.items())[2:])}
    if draw(st.booleans()):
        columns |= _GENERATED
    return Table(name, columns, tuple(key))


@st.composite
def _statements(draw: st.DrawFn, table: Table) -> str:
    columns = {column: kind for column, kind in table.columns.items() if kind.edges and column != "n"}
    n = draw(st.integers(0, 9))
    match draw(
        st.sampled_from(["insert", "insert", "insert", "update", "update", "move", "replace", "delete", "truncate"])
    ):
        case "insert" | "replace" as verb:
            rows = draw(st.lists(st.tuples(st.integers(0, 9), *map(_value, columns.values())), min_size=1, max_size=4))
            values = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
            names = ", ".join(["n", *columns])
            return f"{'REPLACE' if verb == 'replace' else 'INSERT IGNORE'} INTO {table.name} ({names}) VALUES {values}"
        case "update":
            column = draw(st.sampled_from(list(columns)))
            value = draw(_value(columns[column]))
            if columns[column].name == "json" and draw(st.booleans()):
                value = draw(changes_of_json(column))
            where = f"n = {n}" if draw(st.booleans()) else f"n % 2 = {n % 2}"
            return f"UPDATE IGNORE {table.name} SET {column} = {value} WHERE {where}"
        case "move":
            return f"UPDATE IGNORE {table.name} SET n = n + 1 WHERE n <= {n} ORDER BY n DESC"
        case "delete":
            return f"DELETE FROM {table.name} WHERE n = {n}"
        case _:
            return f"TRUNCATE TABLE {table.name}" if n == 0 else f"DELETE FROM {table.name} WHERE n > {n}"


@st.composite
def workloads(draw: st.DrawFn, flavour: str, name: str) -> Workload:
    """A table called ``name`` with up to eight columns of any type, and some transactions on it."""
    table = draw(_tables(name, of_flavour(flavour)))
    transactions = draw(
        st.lists(st.lists(_statements(table), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6)
    )
    return Workload(
        table,
        draw(st.sampled_from(_IMAGES)),
        draw(st.integers(0, 3)) == 0,
        draw(st.booleans()),
        tuple(transactions),
    )
