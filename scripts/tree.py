"""Promises about the tree: modules have ``__all__`` and types; documents cite what exists, in short lines; comments and
docstrings begin with their subject.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.prepare import PACKAGES, ROOT
from scripts.prose import documents, long_lines, without_subject

__all__ = ["cited_files", "drawn_folders", "exports", "headings", "main", "problems"]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# `wormhole/model/position.py`, `caravan/plan.py: plan`, `caravan/plan.py:Plan`
_CITATION = re.compile(r"`([\w.\-/]+/[\w.\-]+\.(?:py|pxd|proto|toml|md))(?::\s*([^`]+))?`")
_OTHER_CODE = ("tests", "scripts", "examples", "benchmarks", "conformance")
_DRAWN_FOLDER = re.compile(r'<text class="folder"[^>]*>([^<]+)<')


def _modules(root: Path, folders: Iterable[str] = PACKAGES) -> Iterator[Path]:
    """Modules of ``folders`` that are written by hand, relative to ``root``."""
    for package in folders:
        for path in sorted((root / package).rglob("*.py")):
            if not path.stem.endswith("_pb2"):
                yield path.relative_to(root)


def exports(root: Path) -> Iterator[str]:
    """Public modules without ``__all__`` or with a wrong one, and packages that do not say they are typed."""
    for package in PACKAGES:
        if (root / package / "__init__.py").exists() and not (root / package / "py.typed").exists():
            yield f"{package}: no py.typed"
    for path in _modules(root):
        if path.stem == "__main__" or (path.stem.startswith("_") and path.stem != "__init__"):
            continue
        tree = ast.parse((root / path).read_text())
        defined = set(_defined(tree.body))
        if "__all__" not in defined:
            if defined:
                yield f"{path}: no __all__"
            continue
        names = _listed(tree)
        if names is None:
            yield f"{path}: __all__ is not a plain list of strings"
            continue
        lazy = "__getattr__" in defined
        missing = sorted(set(names) - defined)
        if missing and not lazy:
            yield f"{path}: __all__ names what is not there: {', '.join(missing)}"
        if len(names) != len(set(names)):
            yield f"{path}: __all__ names something twice"


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
                yield from () if future else ((alias.asname or alias.name).partition(".")[0] for alias in names)
            case ast.If(body=inner, orelse=other):
                yield from _defined([*inner, *other])
            case ast.Try(body=inner, handlers=handlers, orelse=other):
                yield from _defined([*inner, *other, *(part for handler in handlers for part in handler.body)])
            case _:
                pass


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            try:
                value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                return None
            return [str(name) for name in value]
    return None


def headings(text: str) -> set[str]:
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def cited_files(root: Path) -> Iterator[str]:
    """Links and citations in the documents that lead nowhere; citations of a line, which drift silently."""
    for document in documents(root):
        text, name = document.read_text(), document.relative_to(root)
        for target in _LINK.findall(text):
            path, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            page = document.parent / path if path else document
            if not page.exists():
                yield f"{name}: the link to {target} leads nowhere"
            elif anchor and anchor not in headings(page.read_text()):
                yield f"{name}: the link to {target} leads to no heading"
        for path, symbol in _CITATION.findall(text):
            if path.partition("/")[0] not in {*PACKAGES, *_OTHER_CODE, "docs", "proto"}:
                continue
            if not (root / path).exists():
                yield f"{name}: cites {path}, which is not there"
            elif symbol.strip().isdigit():
                yield f"{name}: cites line {symbol} of {path}; cite a function, lines move"
            elif symbol and not all(part in (root / path).read_text() for part in re.findall(r"\w+", symbol)):
                yield f"{name}: cites {symbol} in {path}, which does not have it"


def drawn_folders(root: Path) -> Iterator[str]:
    """Folders that a drawing names and that do not exist."""
    for drawing in sorted((root / "docs" / "pictures").glob("*.svg")):
        for folder in _DRAWN_FOLDER.findall(drawing.read_text()):
            if not (root / folder).is_dir():
                yield f"{drawing.relative_to(root)}: names the folder {folder}, which is not there"


def problems(root: Path = ROOT) -> list[str]:
    """Everything that is wrong with the tree, one line each."""
    nameless = without_subject(root, _modules(root, (*PACKAGES, *_OTHER_CODE)))
    return [*exports(root), *cited_files(root), *drawn_folders(root), *long_lines(root), *nameless]


def main() -> int:
    """Print the problems; the exit status shows whether there are any."""
    found = problems()
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
