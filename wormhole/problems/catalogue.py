"""The entries of the runbook by code, as ``entries.toml`` declares them.

``wormholectl explain`` prints one entry. ``docs/runbook.md`` is made of all entries (:mod:`scripts.runbook`). A test
compares their codes with those that the program declares and raises.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["Entry", "code_of_check", "entries"]

_TEXTS: Final = ("title", "means", "look_at", "do")


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a code.

    ``title``: the symptom, in a sentence. ``means``, ``look_at`` and ``do``: paragraphs, with an empty line between
    two. ``checks``: the checks that ``wormholectl doctor`` reports under this code.
    """

    code: str
    title: str
    means: str
    look_at: str
    do: str
    checks: tuple[str, ...] = ()


def _paragraphs(text: str) -> str:
    """The text without its line breaks, except those between paragraphs."""
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n"))


def _entry(code: str, fields: Mapping[str, Any]) -> Entry:
    texts = {name: _paragraphs(fields[name]) for name in _TEXTS}
    return Entry(code, **texts, checks=tuple(fields.get("checks", ())))


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry by its code, in the order of the runbook."""
    declared = tomllib.loads(files(__package__).joinpath("entries.toml").read_text(encoding="utf-8"))
    return {code: _entry(code, fields) for code, fields in declared.items()}


@cache
def _checks() -> Mapping[str, str]:
    return {check: entry.code for entry in entries().values() for check in entry.checks}


def code_of_check(check: str) -> str:
    """The code of the check that ``wormholectl doctor`` reports as ``check``; empty for a check of another package's
    doctor.
    """
    return _checks().get(check, "")
