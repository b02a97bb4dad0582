"""Codes of problems: what the code declares and gives has an entry, and what has an entry is declared or given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts import runbook
from scripts.prepare import PACKAGES, ROOT
from wormhole.model import errors
from wormhole.problems.catalogue import Entry, entries

MOST = 120
_GIVEN = {"code", "problem_code"}
"""Arguments and attributes that hold a code."""
_MAYBE = re.compile(r"\bcode\b[^\n]*=|code=")
"""Most files give none and need not be parsed."""


def texts(value: ast.expr | None) -> Iterator[str]:
    """Every text that the expression may be. A lower-case name with a hyphen or without; not of a gRPC status."""
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Codes of classes (``code: str = "x"``), of calls (``code="x"``), and of defaults of parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _GIVEN:
                    yield from texts(keyword.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in _GIVEN:
            yield from texts(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg in _GIVEN:
                    yield from texts(default)


@cache
def given() -> dict[str, str]:
    """Code to a file that gives it."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for code in codes_in(ast.parse(text)) if _MAYBE.search(text) else ():
                found.setdefault(code, str(path.relative_to(ROOT)))
    return found


def test_what_is_given_has_an_entry_and_what_has_an_entry_is_given() -> None:
    without = {code: where for code, where in given().items() if code not in entries()}
    assert not without, "write these into wormhole/problems/entries.toml"
    unused = [code for code, entry in entries().items() if code not in given() and not entry.checks]
    assert not unused, "nothing raises or reports these"
    assert len(entries()) <= MOST


def test_every_class_of_errors_has_a_code_of_its_own() -> None:
    codes = [vars(getattr(errors, name)).get("code") for name in errors.__all__]
    assert len(set(codes)) == len(errors.__all__)
    assert set(codes) <= entries().keys()


@pytest.mark.parametrize("entry", entries().values(), ids=list(entries()))
def test_an_entry_can_be_read(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.code)
    assert len(entry.code) <= 28
    for text in (entry.title, entry.means, entry.look_at, entry.do):
        assert text.endswith((".", "?", ")", "`")), text
    named = set(re.findall(r"`explain ([a-z-]+)`", f"{entry.means}{entry.look_at}{entry.do}"))
    assert named <= entries().keys()


def checked(tree: ast.AST) -> Iterator[str]:
    """Names under which a doctor reports what is not as it should be, where they are in its code as they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 2 and ast.unparse(node.func) in {"Finding", "report.add"}:
            check, severity = node.args[:2]
            if isinstance(check, ast.Constant) and ast.unparse(severity) not in {"OK", "Severity.OK"}:
                yield str(check.value)


def test_a_check_of_the_doctor_has_one_code_and_every_code_of_a_check_is_needed() -> None:
    known = [check for entry in entries().values() for check in entry.checks]
    assert len(known) == len(set(known))
    sources = [path.read_text("utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    reported = {check for text in sources if "Severity" in text for check in checked(ast.parse(text))}
    assert "retention" in reported
    assert not reported - set(known), "name these as `checks` of an entry"
    named = set(re.findall(r"""["']([A-Za-z_0-9 ]+)["']""", "\n".join(text for text in sources if "Severity" in text)))
    assert not set(known) - named, "no doctor reports these"


def test_the_runbook_shows_the_entries() -> None:
    page = Path(runbook.PAGE).read_text(encoding="utf-8")
    shown = [*entries().values()]
    assert page == runbook.filled(page, shown), "run python -m scripts.runbook"
    alert = "# Runbook\n\n### WormholeDataLoss\n\n- **Do**: this\n  and that\n\n"
    made = runbook.filled(f"{alert}<!-- codes -->\n<!-- end -->\n", shown)
    assert "### marker-purged\n" in made
    assert "and that\n- **Codes**: " in made
    assert runbook.filled(made, shown) == made


def test_a_code_without_an_entry_is_found() -> None:
    tree = ast.parse('raise Fatal("x", code="of-no-entry")\nclass Own(Fatal):\n    code: str = "own-one"\n')
    assert list(codes_in(tree)) == ["of-no-entry", "own-one"]
