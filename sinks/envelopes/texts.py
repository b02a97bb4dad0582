"""Writes values and rows as JSON text directly, without intermediate objects. Compiled where possible, for speed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Final

from wormhole.formats.json_values import value_as_json
from wormhole.model.values import Value

__all__ = ["dump", "list_text", "object_of", "quoted", "row_text", "value_text"]

dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
quoted: Final = encode_basestring


def value_text(value: Value) -> str:
    """The JSON text of the result of :func:`~wormhole.formats.json_values.value_as_json`."""
    if type(value) is str:
        return quoted(value)
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    return dump(value_as_json(value))


def list_text(values: Iterable[Value] | None) -> str:
    """The JSON list of a key's values."""
    return "null" if values is None else f"[{','.join([value_text(value) for value in values])}]"


def row_text(values: Mapping[str, Value] | None) -> str:
    """The JSON object of a row, by the names of its columns."""
    if values is None:
        return "null"
    return "{" + ",".join([f"{quoted(name)}:{value_text(value)}" for name, value in values.items()]) + "}"


def object_of(texts: Mapping[str, str] | None) -> str:
    """The JSON object that has these JSON texts as values."""
    return "null" if texts is None else "{" + ",".join([f"{quoted(name)}:{text}" for name, text in texts.items()]) + "}"
