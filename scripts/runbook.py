"""Writes the entries of codes into docs/runbook.md from wormhole/problems/entries.toml. ``make check`` compares them.

python -m scripts.runbook [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from scripts.prepare import ROOT
from scripts.prose import bullet
from wormhole.problems.catalogue import Entry, entries

__all__ = ["PAGE", "filled", "main"]

PAGE: Final = ROOT / "docs" / "runbook.md"
_BEGIN: Final = "<!-- codes -->\n"
_END: Final = "<!-- end -->"
_CODES: Final = "- **Codes**: "


def _item(name: str, text: str) -> str:
    """A part of an entry: an item of a list, whose further paragraphs are indented."""
    first, *others = text.split("\n\n")
    return "\n\n".join([bullet(f"**{name}**: {first}"), *(f"  {bullet(one)[2:]}" for one in others)])


def _drawn(entry: Entry) -> str:
    parts = (("Symptom", entry.title), ("What it means", entry.means), ("Look at", entry.look_at), ("Do", entry.do))
    return f"### {entry.code}\n\n" + "\n".join(_item(name, text) for name, text in parts) + "\n"


def filled(page: str, shown: Sequence[Entry]) -> str:
    """The page with the entries, between its marks, written anew, and with each alert's codes: those whose entries name
    the alert.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError("docs/runbook.md has no place for the entries of codes")
    title, *alerts = before.split("\n### ")
    above = "\n### ".join([title, *(_with_codes(one, shown) for one in alerts)])
    below = "\n".join(map(_drawn, shown))
    return f"{above}{begin}\n{below}\n{end}{after}"


def _with_codes(section: str, shown: Iterable[Entry]) -> str:
    """An alert's entry, and what may follow it, with its codes after its last item."""
    alert, _, _ = section.partition("\n")
    entry, gap, rest = section.partition("\n\n## ")
    entry = entry.partition(f"\n{_CODES}")[0].rstrip("\n")
    codes = [one.code for one in shown if re.search(rf"\b{alert}\b", f"{one.means} {one.look_at} {one.do}")]
    listed = bullet(f"{_CODES[2:]}{', '.join(f'`{code}`' for code in codes)}")
    return "".join([entry, f"\n{listed}" if codes else "", gap or "\n", rest])


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` only report whether it is up to date."""
    page = PAGE.read_text()
    wanted = filled(page, [*entries().values()])
    if list(arguments) == ["--check"]:
        if page != wanted:
            print("docs/runbook.md does not show wormhole/problems/entries.toml: run python -m scripts.runbook")
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
