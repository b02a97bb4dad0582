"""Builds the NATS subject of a record from a template.

A template is text with ``{stream}``, ``{dataset}``, ``{log}``, ``{table}`` and ``{key}``. The dots of a table's name
separate tokens, so that ``shop.orders`` is two tokens. Every other name, and each column of a key, is one token. A byte
that is no letter, digit, ``_`` or ``-`` becomes ``%XX``, and an empty name becomes ``%``. So two tables never share a
subject.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from string import Formatter
from typing import Final
from urllib.parse import quote

from sinks.records import Record

__all__ = ["PER_RECORD", "Subjects", "check_template", "covers", "pattern_of"]

PER_RECORD: Final[Mapping[str, str]] = {"table": "{table}", "key": "{key}"}
"""The parts of a template that differ between the records of a shard."""
_PER_SHARD: Final = {"stream", "dataset", "log"}
_LITERAL: Final = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
_TABLES: Final = 4096


def check_template(template: str) -> None:
    """Raise ``ValueError`` if ``template`` is not a template of subjects."""
    known = _PER_SHARD | set(PER_RECORD)
    try:
        plain = all(
            _LITERAL.fullmatch(text) and not spec and not conversion and (name is None or name in known)
            for text, name, spec, conversion in Formatter().parse(template)
        )
    except ValueError:
        plain = False
    if not plain:
        raise ValueError("must be letters, digits, '_', '-', dots, and any of {stream} {dataset} {log} {table} {key}")
    tokens = template.split(".")
    if "" in tokens or any(name in tokens[0] for name in PER_RECORD.values()):
        raise ValueError("must be names with a dot between them, and must not begin with {table} or {key}")


def pattern_of(template: str, stream: str) -> str:
    """A pattern that matches every subject of the template, with the template's fixed names at its beginning."""
    fixed: list[str] = []
    for token in template.replace("{stream}", stream).split("."):
        if "{" in token:
            return ".".join([*fixed, ">"])
        fixed.append(token)
    return ".".join(fixed)


def covers(pattern: str, subject: str) -> bool:
    """Whether ``pattern``, a stream's subject that may have wildcards, matches ``subject``."""
    wanted, given = pattern.split("."), subject.split(".")
    for at, part in enumerate(wanted):
        if part == ">":
            return len(given) > at
        if at >= len(given) or part not in ("*", given[at]):
            return False
    return len(wanted) == len(given)


class Subjects:
    """The subjects of one shard's records."""

    def __init__(self, template: str, *, stream: str, dataset: str, log: str) -> None:
        fixed = {"stream": stream, "dataset": _token(dataset), "log": _token(log)}
        self._template = template.format(**fixed, **PER_RECORD)
        self._keys = PER_RECORD["key"] in template

    def of(self, record: Record) -> str:
        """The subject of one record."""
        return self._template.format(table=_table(record.table), key=_key(record.key) if self._keys else "")


def _token(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E") or "%"


@lru_cache(_TABLES)
def _table(name: str) -> str:
    return ".".join(map(_token, name.split(".")))


def _key(document: bytes) -> str:
    values = json.loads(document) if document else [""]
    if isinstance(values, dict):
        values = list(values.values())
    return ".".join(_token(value if isinstance(value, str) else json.dumps(value)) for value in values)
