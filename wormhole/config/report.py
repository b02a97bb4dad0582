"""Collects the problems of a configuration into one report."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from wormhole.config.datastores import forms
from wormhole.config.passwords import without_password
from wormhole.model.errors import ConfigError
from wormhole.model.suggestion import suggestion

__all__ = ["ConfigReport"]

_LONGEST_VALUE: Final = 80
_MOST_PROBLEMS: Final = 100

_TEXTS: Final = {
    "string_type": "must be a text in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "tuple_type": "must be a list",
    "missing": "is required",
    "string_too_short": "must not be empty",
    "too_short": "must have at least one entry",
}

# The texts for missing fields whose names alone do not explain them.
_REQUIRED: Final = {
    "start": '"latest", "existing", "earliest", a time or a place such as "1/42/32768"',
    "dataset": "the name of one of [datasets]",
    "version": "version = 1",
    "copies": "at least [datasets.NAME.copies.COPY.logs.LOG]",
    "failover.copies": "at least two copies of the dataset, the preferred one first",
}


@dataclass(slots=True)
class ConfigReport:
    """The first 100 problems of one source (a file, or a node in ZooKeeper), in the order found."""

    source: str
    problems: list[str] = field(default_factory=list)
    left_out: bool = False
    """Whether there are more problems."""

    def add(self, path: Sequence[str | int], text: str, value: object = ...) -> None:
        """Add a problem at ``path``. ``value`` is shown, without any password, unless it is left out."""
        if len(self.problems) >= _MOST_PROBLEMS:
            self.left_out = True
            return
        where = ".".join(_cut(str(part)) for part in path) or "the file"
        self.problems.append(f"{where}: {text}" if value is ... else f"{where} = {_shown(value)}: {text}")

    def add_all(self, error: ValidationError, model: type[BaseModel], at: Sequence[str | int], given: object) -> None:
        """Add every problem of ``error``, which the validation of ``given`` as a ``model`` raised. ``at``: its path."""
        for problem in error.errors(include_url=False, include_input=False)[: _MOST_PROBLEMS + 1]:
            where = tuple(part for part in problem["loc"] if part != "[key]")
            kind, path = problem["type"], (*at, *where)
            if kind == "extra_forbidden":
                self.add(path, f"unknown key{suggestion(str(where[-1]), _keys(model, where[:-1]))}")
            elif kind == "missing":
                needed = forms() if where[-1] == "source" else _needed(where)
                self.add(path, "is required" + (f": {needed}" if needed else ""))
            else:
                value = _value_at(given, where)
                text = _TEXTS.get(kind) or _our_words(problem["msg"])
                self.add(path, text, ... if isinstance(value, Mapping) else value)

    def raise_if_any(self) -> None:
        """Raise one :class:`~wormhole.model.errors.ConfigError` that lists every problem, if there is one."""
        if not self.problems:
            return
        if len(self.problems) == 1:
            text = f"{self.source}: {self.problems[0]}"
        else:
            more = ", of which these are the first" if self.left_out else ""
            count = f"{'more than ' if self.left_out else ''}{len(self.problems)} problems{more}"
            text = "\n  ".join([f"{self.source}: {count}", *self.problems])
        raise ConfigError(text)


def _needed(where: Sequence[str | int]) -> str:
    table = ".".join(map(str, where[-2:]))
    return _REQUIRED.get(table) or _REQUIRED.get(str(where[-1]), "")


def _our_words(message: str) -> str:
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"must{text.removeprefix('should')}" if text.startswith("should ") else text


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = without_password(f'"{value}"' if isinstance(value, str) else repr(value))
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _value_at(given: object, where: Sequence[str | int]) -> object:
    for part in where:
        in_table = isinstance(given, Mapping) and part in given
        in_list = isinstance(given, list) and isinstance(part, int) and part < len(given)
        if not (in_table or in_list):
            return ...
        given = given[part]  # type: ignore[index]  # one of the two, tested above
    return given


def _keys(model: type[BaseModel], where: Sequence[str | int]) -> list[str]:
    """Keys that are allowed at ``where`` below ``model``; none if any key is allowed."""
    kind: Any = model
    for part in where:
        kind = _plain(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {found.alias or name: found.annotation for name, found in kind.model_fields.items()}
            kind = fields.get(str(part))
        elif get_args(kind):
            kind = get_args(kind)[-1]
    kind = _plain(kind)
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    # `name` is the table's own key, given by the loader, never written inside the table.
    return [found.alias or name for name, found in kind.model_fields.items() if name != "name"]


def _plain(kind: Any) -> Any:
    """The type inside ``X | None``."""
    if get_origin(kind) in (types.UnionType, Union):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind
