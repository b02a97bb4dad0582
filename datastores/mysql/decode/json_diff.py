"""Applies changes of a JSON document (``binlog_row_value_options=PARTIAL_JSON``) to the text of the former document.

The format of the changes, from the server's documentation of ``Json_diff``; lengths are length-encoded integers::

    diffs := diff*      diff := operation (1) length path [length document]    operations: 0 replace, 1 insert, 2 remove

A path names one place: ``$.name[3]."other name"[last-2]``. An index from the end becomes negative here, as in Python:
``last`` is -1. An insert adds a member to an object, or a value to an array, whose later values move up. Beyond the
array's end or beginning, the value is added there.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

from datastores.mysql.decode.cursor import Cursor
from datastores.mysql.decode.json_text import json_text
from wormhole.model.errors import DecodeError

__all__ = ["apply_diffs"]

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG: Final = re.compile(
    r'\.\s*("(?:[^"\\]|\\.)*+"|[^\s.\[*"]++)|\[\s*(?:([0-9]{1,10})|last(?:\s*-\s*([0-9]{1,10}))?)\s*\]', re.DOTALL
)

_Node: TypeAlias = Any
"""A list, a dict, a string, or the text of any other value."""


class _Plain(str):
    """A value that is neither a string nor a container, as text. It is written back unchanged."""

    __slots__ = ()


_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def _tree(text: str) -> _Node:
    return json.loads(text, parse_int=_Plain, parse_float=_Plain)


def _write(node: _Node, out: list[str]) -> None:
    if isinstance(node, _Plain):
        out.append(node)
    elif isinstance(node, str):
        out.append(json.dumps(node, ensure_ascii=False))
    elif isinstance(node, list):
        out.append("[")
        for i, value in enumerate(node):
            out.append(", " if i else "")
            _write(value, out)
        out.append("]")
    elif isinstance(node, dict):
        out.append("{")
        # MySQL keeps members in the order of their names' lengths, then of their bytes.
        names = sorted((len(name.encode()), name.encode(), name) for name in node)
        for i, (_, _, name) in enumerate(names):
            out.append(f"{', ' if i else ''}{json.dumps(name, ensure_ascii=False)}: ")
            _write(node[name], out)
        out.append("}")
    else:
        out.append(_CONSTANTS[node])


def _legs(path: str) -> list[str | int]:
    legs: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while leg := _LEG.match(path, at):
        at = leg.end()
        name: str | None = leg[1]
        if name is None:
            legs.append(-1 - int(leg[3] or 0) if leg[2] is None else int(leg[2]))
            continue
        try:
            legs.append(json.loads(name if name.startswith('"') else f'"{name}"', strict=False))
        except ValueError:
            raise DecodeError(f"JSON change: {name!r} in the path {path!r} is no name") from None
    if not legs or at < len(path):
        raise DecodeError(f"JSON change: {path!r} is no path to one place")
    return legs


def _has(node: _Node, leg: str | int) -> bool:
    if isinstance(leg, int):
        return isinstance(node, list) and -len(node) <= leg < len(node)
    return isinstance(node, dict) and leg in node


def _apply(tree: _Node, operation: int, path: str, value: _Node) -> None:
    *way, last = _legs(path)
    parent = tree
    for leg in way:
        if not _has(parent, leg):
            raise DecodeError(f"JSON change: the path {path!r} is not in the document before")
        parent = parent[leg]
    if operation == _INSERT and isinstance(parent, list) and isinstance(last, int):
        parent.insert(last, value)
    elif operation == _INSERT and isinstance(parent, dict) and isinstance(last, str) and last not in parent:
        parent[last] = value
    elif operation == _INSERT or not _has(parent, last):
        raise DecodeError(f"JSON change: the path {path!r} does not fit the document before")
    elif operation == _REPLACE:
        parent[last] = value
    else:
        del parent[last]


def apply_diffs(before: str, diffs: bytes, start: int, end: int) -> str:
    """The text of the document after the changes in ``diffs[start:end]``. ``before``: the former document as
    `json_text`.

    Raises :class:`DecodeError` if the bytes are no changes, or do not fit the document.
    """
    cursor = Cursor(diffs, "JSON changes", start, end)
    tree = _tree(before)
    while cursor.left:
        operation = cursor.number(1, "operation")
        if operation > _REMOVE:
            raise DecodeError(f"JSON changes: operation {operation} is unknown")
        path = cursor.text(cursor.length("length of the path"), "path")
        value: _Node = None
        if operation != _REMOVE:
            size = cursor.length("length of the document")
            document = cursor.take(size, "document")
            value = _tree(json_text(document, 0, size))
        _apply(tree, operation, path, value)
    out: list[str] = []
    _write(tree, out)
    return "".join(out)
