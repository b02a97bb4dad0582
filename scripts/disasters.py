"""``python -m scripts.disasters``: the table of docs/disasters.md, from the rows that the tests do and the seconds that they measured.

The seconds come from ``build/disasters.json`` (``make soak ARGS="-k disaster"`` writes it); rows that were not measured keep what the
page says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT

__all__ = ["MEASURED", "PAGE", "main", "rows_of", "seconds_of", "table"]

PAGE: Final = ROOT / "docs" / "disasters.md"
MEASURED: Final = ROOT / "build" / "disasters.json"
_HEAD: Final = "| what | disaster | in detail | with | reported | way on | seconds |"
_LINE: Final = "|---|---|---|---|---|---|---|"


def rows_of(seconds: Mapping[str, str]) -> list[str]:
    """A row for each cell. ``seconds``: by :func:`key_of` of the row without them."""
    from tests.system.harness.disaster_table import CELLS

    rows = []
    for cell in CELLS:
        if cell.setting is None:
            parts = [cell.thing, cell.disaster, f"makes no sense: {cell.what}", "", "", ""]
        else:
            way = "; ".join(f"`{step}`" if step.startswith("wormholectl") else step for step in cell.way)
            reported = "; ".join(map(str, cell.signs))
            parts = [cell.thing, cell.disaster, cell.what, str(cell.setting), reported, way or "nothing to do"]
        key = "| " + " | ".join(parts) + " |"
        rows.append(f"{key} {seconds.get(key, '')} |")
    return rows


def table(seconds: Mapping[str, str]) -> str:
    """The whole table."""
    return "\n".join([_HEAD, _LINE, *rows_of(seconds)])


def seconds_of(page: str) -> dict[str, str]:
    """What the page says of each row, by the row without it."""
    return dict(re.findall(r"^(\|.*\|) ([\d.]+ \+ [\d.]+) \|$", page, re.MULTILINE))


def measured(path: Path) -> dict[str, str]:
    """What the tests measured, by the row without it."""
    from tests.system.harness.disaster_table import CELLS

    if not path.exists():
        return {}
    known = json.loads(path.read_text())
    keys = [row.removesuffix("  |") for row in rows_of({})]
    return {
        key: "{} + {}".format(*known[cell.name]) for key, cell in zip(keys, CELLS, strict=True) if cell.name in known
    }


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text()
    seconds = seconds_of(page) | measured(MEASURED)
    before, _, rest = page.partition(_HEAD)
    behind = re.sub(r"\A(\n\|.*)*", "", rest)
    PAGE.write_text(before + table(seconds) + behind)


if __name__ == "__main__":
    main()
