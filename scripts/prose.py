"""Checks the length of lines in documents, and the first words of comments and docstrings.

Lines of the documents end at 120 characters. A table's row cannot be wrapped, so a table that needs a longer one is a
list. A line without a space, such as a long URL, may be longer: nothing wraps it.

A comment or a docstring begins with its subject. One that begins with "of" makes the reader look for what it is about.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["WIDTH", "bullet", "documents", "long_lines", "without_subject"]

WIDTH: Final = 120
_OF_COMMENT: Final = re.compile(r"#:?\s*[Oo]f\b")
_OF_TEXT: Final = re.compile(r"\s*Of\b")


def documents(root: Path) -> list[Path]:
    """Every page of the project that is written for people."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")])


def long_lines(root: Path) -> Iterator[str]:
    """Lines of the documents and their drawings that are too long."""
    for path in [*documents(root), *sorted((root / "docs" / "pictures").glob("*.svg"))]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDTH and " " in line.strip():
                long = "a table with such a row becomes a list" if line.lstrip().startswith("|") else "wrap it"
                yield f"{path.relative_to(root)}:{number}: {len(line)} characters, at most {WIDTH}: {long}"


def without_subject(root: Path, modules: Iterable[Path]) -> Iterator[str]:
    """Comments that begin with "of", and docstrings that begin with "Of", in ``modules``, which are below ``root``.

    A line that continues a comment begins none. A text under an assignment documents it as a docstring does.
    """
    for module in modules:
        text = (root / module).read_text(encoding="utf-8")
        if _OF_COMMENT.search(text) is None and _OF_TEXT.search(text) is None:
            continue
        lines = sorted([*_comments_of(text), *_docstrings_of(text)])
        yield from (f'{module}:{line}: {what} begins with its subject, not with "of"' for line, what in lines)


def _comments_of(text: str) -> Iterator[tuple[int, str]]:
    above = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            alone = not token.line[:column].strip()
            if _OF_COMMENT.match(token.string) and not (alone and above == line - 1):
                yield line, "a comment"
            above = line if alone else above


def _docstrings_of(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(content))) if _OF_TEXT.match(content):
                yield node.lineno, "a docstring"
            case _:
                pass


def bullet(text: str, indent: str = "") -> str:
    """An item of a list, wrapped."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"{indent}- ",
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
