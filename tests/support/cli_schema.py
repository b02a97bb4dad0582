"""docs/cli-schema.json, held to the letter: what it does not name is an error here, though programs have to bear it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

_FILE = Path(__file__).parents[2] / "docs" / "cli-schema.json"


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(_FILE.read_text())
    Draft202012Validator.check_schema(schema)
    _close(schema)
    return schema


def _close(node: Any) -> None:
    if isinstance(node, dict):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
        for one in node.values():
            _close(one)
    elif isinstance(node, list):
        for one in node:
            _close(one)


def names() -> set[str]:
    """The outputs that have a definition."""
    return {one["$ref"].rpartition("/")[2] for one in _schema()["anyOf"]}


def check(name: str, told: str) -> Any:
    """What a command printed last, which has to be as ``name`` is defined."""
    value = json.loads(told.splitlines()[-1])
    schema = {"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(value)
    return value
