"""Time is passed in: only the module that builds the clock of the system asks for it."""

from __future__ import annotations

import ast

import pytest

from scripts.prepare import ROOT

TIMELESS = {
    "caravan": (),
    "monitor": (),
    "publisher": ("publisher/sources",),
    "spark_replay/replay": (),
    "wormhole/push": (),
    "wormholectl": (),
}
"""Folders in which no module imports `time`, each with the folders below it that do not hold to that yet."""


def _imports_time(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time"
    return isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names)


@pytest.mark.parametrize("folder", TIMELESS)
def test_no_module_imports_time(folder: str) -> None:
    modules = (ROOT / folder).rglob("*.py")
    held = [path for path in modules if not any(ROOT / other in path.parents for other in TIMELESS[folder])]
    found = [str(path) for path in held if any(map(_imports_time, ast.walk(ast.parse(path.read_text()))))]
    assert found == [], "use the clock that is passed in (wormhole.host.clock)"
