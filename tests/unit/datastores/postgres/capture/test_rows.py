"""Recorded rows as messages of the log: texts of composite values, lines of a COPY, tables with generated columns."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.postgres.capture import rows
from datastores.postgres.decode.encodings import UTF8
from datastores.postgres.decode.messages import parse_relation, parse_type
from tests.support import postgres_messages as messages

Cells = list[bytes | None]

_QUOTED = b'"\\(), \t\n\r\v\f'


def _record(cells: Cells) -> bytes:
    """The text that PostgreSQL's record_out gives."""

    def one(cell: bytes | None) -> bytes:
        if cell is None:
            return b""
        if cell and not any(byte in _QUOTED for byte in cell):
            return cell
        return b'"' + cell.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'

    return b"(" + b",".join(map(one, cells)) + b")"


def _line(values: Cells) -> bytes:
    """The line that COPY sends."""
    escapes = ((b"\\", b"\\\\"), (b"\b", b"\\b"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r"))
    parts = []
    for value in values:
        text = b"\\N" if value is None else value
        if value is not None:
            for raw, escaped in escapes:
                text = text.replace(raw, escaped)
        parts.append(text)
    return b"\t".join(parts) + b"\n"


_CELL = st.none() | st.binary(max_size=8) | st.text('ab",\\() \n\t', max_size=6).map(str.encode)
_CELLS = st.lists(_CELL, min_size=1, max_size=5)


@given(_CELLS, _CELLS)
def test_a_row_is_the_tuple_that_the_log_has(old: Cells, new: Cells) -> None:
    got = rows.change(b"U", 7, _record(old), _record(new), ())
    assert got[25:] == b"U" + struct.pack(">I", 7) + b"O" + messages.row(old) + b"N" + messages.row(new)


@given(st.lists(_CELL, min_size=2, max_size=4))
def test_the_values_of_a_line(values: Cells) -> None:
    assert rows.fields(_line(values)) == values


def test_generated_columns_are_left_out() -> None:
    table = {
        "schema": "shop",
        "table": "a",
        "columns": [
            ["k", 23, None, True, False],
            ["g", 23, None, False, True],
            ["v", 16400, ["", "text"], False, False],
        ],
    }
    (kind, relation), left_out = rows.described(7, table, UTF8)
    assert parse_type(kind, 25).name == "text"
    found = parse_relation(relation, 25)
    assert [(column.name, column.is_key) for column in found.columns] == [("k", True), ("v", False)]
    assert rows.change(b"I", 7, None, b"(1,2,3)", left_out)[25:].endswith(b"N" + messages.row([b"1", b"3"]))


@pytest.mark.parametrize("in_key", [True, False])
def test_a_key_with_a_generated_column_is_no_key(in_key: bool) -> None:
    columns = [["k", 23, None, True, False], ["g", 23, None, in_key, True]]
    messages_, _ = rows.described(7, {"schema": "s", "table": "t", "columns": columns}, UTF8)
    assert parse_relation(messages_[-1], 25).columns[0].is_key is not in_key
