"""``python -m scripts.disasters``: the list in docs/disasters.md, from the rows that the tests run and their seconds.

``make soak ARGS="-k disaster"`` writes the seconds to ``build/disasters.json``. A row that was not measured keeps those
of the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT
from scripts.prose import bullet

__all__ = ["MEASURED", "PAGE", "main", "rows_of", "seconds_of", "table"]

PAGE: Final = ROOT / "docs" / "disasters.md"
MEASURED: Final = ROOT / "build" / "disasters.json"
_BEGIN: Final = "<!-- rows -->\n"
_END: Final = "<!-- end -->"
_MEASURED_ROW: Final = re.compile(
    r"^(- \*\*(?:(?!^- \*\*).)*?)\n  - Seconds: ([\d.]+ \+ [\d.]+)$", re.MULTILINE | re.DOTALL
)


def rows_of(seconds: Mapping[str, str]) -> list[str]:
    """An item of the list for each row. ``seconds``: by the row without them."""
    from tests.system.harness.disaster_table import CELLS

    rows = []
    for cell in CELLS:
        name = f"**{cell.thing}, {cell.disaster}**"
        if cell.setting is None:
            rows.append(bullet(f"{name}: not applicable: {cell.what}"))
            continue
        way = "; ".join(f"`{step}`" if step.startswith("wormholectl") else step for step in cell.way)
        parts = [
            bullet(f"{name} ({cell.setting}): {cell.what}"),
            bullet(f"Reported: {'; '.join(map(str, cell.signs))}", "  "),
            bullet(f"Next step: {way or 'nothing to do'}", "  "),
        ]
        row = "\n".join(parts)
        rows.append(f"{row}\n  - Seconds: {seconds[row]}" if row in seconds else row)
    return rows


def table(seconds: Mapping[str, str]) -> str:
    """The whole list, between its marks."""
    return f"{_BEGIN}{chr(10).join(rows_of(seconds))}\n{_END}"


def seconds_of(page: str) -> dict[str, str]:
    """The seconds that the page has for each row, by the row without them."""
    return dict(_MEASURED_ROW.findall(page))


def measured(path: Path) -> dict[str, str]:
    """The seconds that the tests measured, by the row without them."""
    from tests.system.harness.disaster_table import CELLS

    if not path.exists():
        return {}
    known = json.loads(path.read_text())
    rows = zip(rows_of({}), CELLS, strict=True)
    return {row: "{} + {}".format(*known[cell.name]) for row, cell in rows if cell.name in known}


def main() -> None:
    """Write the list into the page."""
    page = PAGE.read_text()
    seconds = seconds_of(page) | measured(MEASURED)
    before, _, rest = page.partition(_BEGIN)
    PAGE.write_text(before + table(seconds) + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
