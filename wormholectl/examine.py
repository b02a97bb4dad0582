"""``wormholectl doctor``: what the examination of a datastore or of an installation found, for a person and for a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from wormholectl import survey as looking
from wormholectl.discovery import Where
from wormholectl.guard import BROKEN, UNREACHABLE
from wormholectl.installation import judge
from wormholectl.show.printer import SCHEMA, print_json, print_line
from wormholectl.sources import datastore_at, installed, login_of

__all__ = ["examine", "examine_installation"]

_SIGNS: Final = {"ok": ("ok       ", "green"), "warn": ("note     ", "yellow"), "problem": ("PROBLEM  ", "bold red")}


def examine(url: str, state_dir: Path, as_json: bool, password_file: Path | None = None) -> int:
    """Print the report; the exit code is 1 when a problem was found. Raises :class:`~wormhole.model.errors.WormholeError`."""
    found = datastore_at(url)
    with installed(found):
        report = found.examine(url, state_dir, login_of(url, password_file))
    return _show(report.as_dict(), as_json)


def examine_installation(where: Where, as_json: bool) -> int:
    """Look at everything that ``where`` leads to and print the report; the exit code is 1 when a problem was found, 3 when it is that
    nothing answers. Raises :class:`~wormhole.model.errors.UsageError` when nothing says where to look."""
    seen = looking.look(where)
    code = _show(judge(seen).as_dict(), as_json)
    return UNREACHABLE if seen.unreachable else code


def _show(report: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json({"schema": SCHEMA, **report})
    else:
        _tell(report)
    return BROKEN if report["severity"] == "problem" else 0


def _tell(report: dict[str, Any]) -> None:
    print_line([(report["url"], "bold")])
    for name, fact in report["facts"].items():
        print_line([(f"  {name}: ", "dim"), (fact, "")])
    for finding in report["findings"]:
        sign, style = _SIGNS[finding["severity"]]
        print_line([(sign, style), (f"{finding['check']}: {finding['what']}", "")])
        if finding["because"]:
            print_line([(f"{'':9}{finding['because']}", "dim")])
        if finding["next_step"]:
            print_line([(f"{'':9}next: {finding['next_step']}", "")])
    found = [finding["severity"] for finding in report["findings"]]
    print_line([(f"{_count(found.count('problem'), 'problem')}, {_count(found.count('warn'), 'note')}", "bold")])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
