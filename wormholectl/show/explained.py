"""Shows codes of problems and their explanations, as text or as JSON objects."""

from __future__ import annotations

from collections.abc import Iterable

from wormhole.problems.catalogue import Entry
from wormholectl.show.printer import print_json, print_table, print_text

__all__ = ["show_codes", "show_entry"]


def show_codes(entries: Iterable[Entry], as_json: bool) -> None:
    """Print every code with its title."""
    if as_json:
        print_json({"codes": [{"code": one.code, "title": one.title} for one in entries]})
        return
    print_table(("CODE", "TITLE"), [(one.code, one.title) for one in entries], "no codes")


def show_entry(entry: Entry, as_json: bool) -> None:
    """Print one explanation. Its text is not wrapped, because the terminal does that."""
    if as_json:
        print_json(
            {
                "code": entry.code,
                "title": entry.title,
                "means": entry.means,
                "look_at": entry.look_at,
                "do": entry.do,
                "checks": list(entry.checks),
            }
        )
        return
    print_text(f"{entry.code}: {entry.title}")
    for name, text in (("What it means", entry.means), ("Look at", entry.look_at), ("Do", entry.do)):
        print_text("", f"{name}:", *(f"  {line}" for line in text.splitlines()))
