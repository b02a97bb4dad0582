"""Which attributes a module assigns on something else than ``self``."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path


def assigned_elsewhere(folders: Collection[Path], attributes: Collection[str], others: Collection[str]) -> list[str]:
    """Where ``folders`` assign one of ``attributes``. ``others``: names of variables that are of another class."""
    return [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for folder in folders
        for path in folder.rglob("*.py")
        for node in _assigned(ast.parse(path.read_text()))
        if node.attr in attributes and ast.unparse(node.value).rpartition(".")[2] not in {"self", *others}
    ]


def _assigned(tree: ast.Module) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node
