"""``python -m scripts.statements [FOLDER]``: the statements of source and tests by folder, to compare two commits by.

Counted with `ast`, so that formatting and comments do not matter; docstrings and generated modules do not count. FOLDER
is a checkout of another commit.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scripts.prepare import PACKAGES, ROOT

__all__ = ["main", "statements"]

_BODIES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def statements(source: str) -> int:
    """The statements in ``source``, without docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    documented = sum(isinstance(node, _BODIES) and ast.get_docstring(node, clean=False) is not None for node in nodes)
    return sum(isinstance(node, ast.stmt) for node in nodes) - documented


def _counted(root: Path, top: str) -> Counter[str]:
    """Statements below ``top`` by folder, two levels deep."""
    counts: Counter[str] = Counter()
    for path in (root / top).rglob("*.py"):
        if not path.stem.endswith("_pb2"):
            counts["/".join(path.relative_to(root).parent.parts[:2])] += statements(path.read_text())
    return counts


def main(arguments: Sequence[str]) -> int:
    """Print the counts."""
    root = Path(arguments[0]) if arguments else ROOT
    for name, tops in (("source", PACKAGES), ("tests", ("tests",))):
        counts = sum((_counted(root, top) for top in tops), Counter[str]())
        print(*(f"{count:7,}  {folder}" for folder, count in sorted(counts.items())), sep="\n")
        print(f"{counts.total():7,}  {name} in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
