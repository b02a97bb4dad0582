"""Lines of the documents end at 120 characters. A table's row cannot be wrapped, so a table that needs a longer one is
a list.

A line without a space, such as a long URL, may be longer: nothing wraps it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["WIDTH", "bullet", "documents", "long_lines"]

WIDTH: Final = 120


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
