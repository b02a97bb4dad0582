"""`make claims`: every test that docs/compare.md names as a proof exists, runs and passes; a skipped one proves
nothing.

A claim is a test's id in backquotes: ``tests/folder/test_module.py::test_name``, or ``…::TestClass::test_name``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Xml

from scripts.prepare import ROOT

__all__ = ["PAGE", "claimed", "main", "missing", "unproved"]

PAGE = ROOT / "docs" / "compare.md"
_ID = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+)`")


def claimed(text: str) -> list[str]:
    """The ids of the tests that a page names, each once, in its order."""
    return list(dict.fromkeys(_ID.findall(text)))


def missing(ids: Sequence[str], root: Path = ROOT) -> list[str]:
    """Those of ``ids`` that are no test of their module."""
    found = []
    for one in ids:
        file, *classes, name = one.split("::")
        path = root / file
        body = ast.parse(path.read_text()).body if path.is_file() else []
        for outer in classes:
            body = next((c.body for c in body if isinstance(c, ast.ClassDef) and c.name == outer), [])
        if not any(isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) and f.name == name for f in body):
            found.append(one)
    return found


def unproved(ids: Sequence[str], report: str) -> dict[str, str]:
    """What did not pass of ``ids`` in pytest's JUnit report, and why: a claim holds when all cases of its test ran and
    passed.
    """
    outcomes: dict[tuple[str, str], list[str]] = {_in_report(one): [] for one in ids}
    for case in Xml.fromstring(report).iter("testcase"):
        test = case.get("classname", ""), case.get("name", "").partition("[")[0]
        if test in outcomes:
            outcomes[test].append(next((bad.tag for bad in case if bad.tag in {"failure", "error", "skipped"}), ""))
    told = {one: outcomes[_in_report(one)] for one in ids}
    return {
        one: ", ".join(sorted(set(filter(None, cases)))) or "did not run"
        for one, cases in told.items()
        if not cases or any(cases)
    }


def _in_report(one: str) -> tuple[str, str]:
    """How the report calls a test: its module and class, and its name."""
    file, *classes, name = one.split("::")
    return ".".join([file.removesuffix(".py").replace("/", "."), *classes]), name


def main() -> int:
    """Run the claimed tests; returns 0 when every claim is proved."""
    ids = claimed(PAGE.read_text())
    if absent := missing(ids):
        print(f"make claims: {PAGE.relative_to(ROOT)} names tests that do not exist:", *absent, sep="\n  ")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "claims.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={report}", *ids]
        subprocess.run(command, cwd=ROOT, check=False)
        bad = unproved(ids, report.read_text()) if report.exists() else dict.fromkeys(ids, "did not run")
    for one, why in bad.items():
        print(f"make claims: not proved: {one} ({why})")
    print(f"make claims: {len(ids) - len(bad)} of {len(ids)} tests named in {PAGE.relative_to(ROOT)} ran and passed")
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
