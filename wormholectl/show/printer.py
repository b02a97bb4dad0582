"""Prints the output of all commands: JSON lines for programs, plain or coloured text for people.

No command prints without this module (ruff forbids a bare ``print``), because names, values and messages may come from
a peer. Their control characters are escaped (:mod:`wormhole.model.visible`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from wormhole.model.units import rounded_size as size
from wormhole.model.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:  # imported late, because commands that print plain lines do not need Rich
    from rich.console import Console

__all__ = [
    "SCHEMA",
    "Piece",
    "counted",
    "local",
    "next_step_lines",
    "print_json",
    "print_line",
    "print_notes",
    "print_progress",
    "print_table",
    "print_text",
    "print_warnings",
    "say_waiting",
    "size",
    "span",
    "utc",
]


SCHEMA: Final = 1
"""The version of all JSON objects of the command line. A new field does not change it."""

# A figure: 1,202,000 or 12.5% or 1.5 MiB/s, perhaps with text in parentheses: 8.0 (x 0.8).
_FIGURE: Final = re.compile(r"-?\d[\d,]*(\.\d+)?%?( ([KMGT]i)?B(/s)?)?(\s+\(.*\))?")

Piece = tuple[str, str]
"""Text and its style, as Rich names styles."""


@cache
def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Mapping[str, Any], *, flush: bool = True) -> None:
    """Print one JSON object on one line, with the version of its schema."""
    sys.stdout.write(visible_json(json.dumps({"schema": SCHEMA, **value}, ensure_ascii=False)) + "\n")
    if flush:
        sys.stdout.flush()


def print_text(*lines: str, error: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Print lines for people. Text after a line break in a line is indented. ``error``: print on standard error."""
    stream = sys.stderr if error else sys.stdout
    stream.write("\n".join(map(visible_lines, lines)) + end)
    if flush or error:
        stream.flush()


def print_warnings(problems: Iterable[str]) -> None:
    """Print each problem on a line of standard error."""
    for problem in problems:
        print_text(f"warning: {problem}", error=True)


def print_notes(notes: Iterable[str]) -> None:
    """Print each note on a line of standard output."""
    for note in notes:
        print_text(f"note: {note}")


def next_step_lines(step: str) -> list[str]:
    """The lines of a next step. A statement to paste, which ends with ``;``, is on a separate line."""
    lines = step.split("\n")
    return (
        [f"next: {step}"] if len(lines) == 1 and not step.endswith(";") else ["next:", *(f"  {one}" for one in lines)]
    )


def print_progress(text: str) -> None:
    """Show a text on standard error if it is a terminal, in place of the previous text. An empty text clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{visible(text)}")
        sys.stderr.flush()


def say_waiting(text: str) -> None:
    """Print on standard error, if it is a terminal, which step takes long now."""
    if sys.stderr.isatty():
        print_text(text, error=True)


def print_line(pieces: Sequence[Piece], *, flush: bool = True) -> None:
    """Print one line without wrapping. It is coloured if the terminal shows colours (``NO_COLOR`` is obeyed)."""
    shown = [(visible(text), style) for text, style in pieces]
    if sys.stdout.isatty():
        from rich.text import Text

        _console().print(Text.assemble(*shown), soft_wrap=True)
        return
    sys.stdout.write("".join(text for text, _ in shown) + "\n")
    if flush:
        sys.stdout.flush()


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    empty: str,
    title: str = "",
    spare: Sequence[str] = (),
) -> None:
    """Print a table below its ``title``, or the text ``empty`` if it has no rows. Columns of figures are right-aligned.

    No cell is ever cut. A file or a pipe gets lines as wide as the content. On a narrow terminal, columns of ``spare``
    are omitted and named, in that order, until the table fits. If it still does not fit, each row is a block of several
    lines with all columns.
    """
    if not rows:
        print_text(empty)
        return
    if title:
        print_line([(title, "bold")])
    rows = [[visible(cell) for cell in row] for row in rows]
    cells = list(zip(*rows, strict=True))
    widths = [max(map(len, (name, *column))) for name, column in zip(columns, cells, strict=True)]
    right = [
        number > 0 and _are_figures(column) for number, column in enumerate(cells)
    ]  # the first column names the row
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            aligned = zip(row, widths, right, strict=True)
            print_text(
                "  ".join(cell.rjust(wide) if ends else cell.ljust(wide) for cell, wide, ends in aligned).rstrip()
            )
        return
    left_out: list[str] = []
    while _width(widths) > _console().width and len(left_out) < len(spare):
        left_out.append(spare[len(left_out)])
        kept = [number for number, name in enumerate(columns) if name not in left_out]
        widths = [max(map(len, (columns[number], *cells[number]))) for number in kept]
    if left_out and _width(widths) <= _console().width:
        kept = [number for number, name in enumerate(columns) if name not in left_out]
        print_table([columns[n] for n in kept], [[row[n] for n in kept] for row in rows], empty)
        print_text(f"not in this width: {', '.join(left_out)}; a wider terminal, a pipe or --json has them")
        return
    if left_out or _width(widths) > _console().width:
        for row in rows:
            _print_block(columns, row)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, ends in zip(columns, right, strict=True):
        table.add_column(name, justify="right" if ends else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def _are_figures(column: Sequence[str]) -> bool:
    cells = [cell for cell in column if cell not in {"", "-"}]
    return bool(cells) and all(map(_FIGURE.fullmatch, cells))


def _print_block(columns: Sequence[str], row: Sequence[str]) -> None:
    """Print a row as a block: the first cell on a line, and the other cells with their names on lines below, as many as
    fit on each. Empty cells are omitted.
    """
    print_line([(row[0], "bold")])
    line: list[Piece] = []
    for name, cell in zip(columns[1:], row[1:], strict=True):
        if not cell:
            continue
        piece: list[Piece] = [("  ", ""), (f"{name} ", "dim"), (cell, "")]
        if line and sum(len(text) for text, _ in line + piece) > _console().width:
            print_line(line)
            line = []
        line += piece
    if line:
        print_line(line)


def counted(number: int, noun: str) -> str:
    """``1 flow``, ``2,000 flows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def local(at_s: float) -> str:
    """A time for people, in the local time zone: ``2026-05-01 12:00:00``; ``-`` if it is not known."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}" if at_s else "-"


def utc(at_s: float) -> str:
    """A time for programs: ``2026-05-01T12:00:00Z``."""
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


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
