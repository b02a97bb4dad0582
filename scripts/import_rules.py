"""Writes the import rules into docs/architecture.md from the contracts that import-linter checks. A test compares them.

python -m scripts.import_rules [--check]
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from scripts.prepare import ROOT
from scripts.prose import bullet

__all__ = ["PAGE", "filled", "main"]

PAGE: Final = ROOT / "docs" / "architecture.md"
_BEGIN: Final = "<!-- import rules -->\n"
_END: Final = "<!-- end -->"


def _drawn(contract: Mapping[str, Any]) -> str:
    """A contract as the page shows it: layers as a drawing, what is forbidden as a sentence."""
    name = f"**{contract['name']}**"
    if contract["type"] == "layers":
        layers = "\n".join(f"    {layer.replace('|', '  ')}" for layer in contract["layers"])
        return f"{name} (a layer may import the ones below it):\n\n{layers}\n"
    if contract["type"] != "forbidden":
        return bullet(name)
    modules = ", ".join(f"`{module}`" for module in contract["source_modules"])
    return bullet(f"{name}: {modules} may not import {', '.join(f'`{one}`' for one in contract['forbidden_modules'])}")


def filled(page: str, contracts: Sequence[Mapping[str, Any]]) -> str:
    """The page with the rules, between its marks, written anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError("docs/architecture.md has no place for the import rules")
    layers = [_drawn(one) for one in contracts if one["type"] == "layers"]
    others = [_drawn(one) for one in contracts if one["type"] != "layers"]
    return f"{before}{begin}{chr(10).join([*layers, *others])}\n{end}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` only report whether it is up to date."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    page = PAGE.read_text()
    wanted = filled(page, contracts)
    if list(arguments) == ["--check"]:
        if page != wanted:
            print(
                "docs/architecture.md does not show the contracts of pyproject.toml: run python -m scripts.import_rules"
            )
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
