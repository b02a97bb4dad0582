"""How the command line prints: JSON lines for programs, plain or coloured text for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wormhole.cli.render import Piece

__all__ = ["print_json", "print_line", "print_table", "size", "span"]


@cache
def _console() -> Console:
    return Console(highlight=False)


def print_json(value: Mapping[str, Any], *, flush: bool = True) -> None:
    """One object on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    if flush:
        sys.stdout.flush()


def print_line(pieces: Sequence[Piece], *, flush: bool = True) -> None:
    """One line, coloured only where the terminal shows colours (``NO_COLOR`` is obeyed) and never wrapped."""
    if sys.stdout.isatty():
        _console().print(Text.assemble(*pieces), soft_wrap=True)
        return
    sys.stdout.write("".join(text for text, _ in pieces) + "\n")
    if flush:
        sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """A table that is as wide as it needs when nobody looks at it in a terminal, or ``empty`` when it has no rows."""
    if not rows:
        print(empty)
        return
    if not sys.stdout.isatty():
        # Nobody's window to fit into: what reads this splits lines.
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(columns):
        # What is looked for first must not be broken over lines.
        table.add_column(name, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def size(count: float) -> str:
    """Bytes with a unit, three digits about: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def span(seconds: float) -> str:
    """A time span with its two largest units: ``3m 20s``."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for i, (name, length) in enumerate(units):
        if whole >= length:
            rest = units[i + 1] if i + 1 < len(units) else None
            tail = f" {whole % length // rest[1]}{rest[0]}" if rest else ""
            return f"{whole // length}{name}{tail}"
    return "0s"
