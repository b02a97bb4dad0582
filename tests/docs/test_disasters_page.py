"""docs/disasters.md shows the rows that tests/system/test_disasters.py does, word for word."""

from __future__ import annotations

import re

from scripts.disasters import PAGE, rows_of, seconds_of, table
from tests.system.harness.disaster_table import CELLS

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_rows_that_are_tested() -> None:
    assert table(seconds_of(TEXT)) in TEXT, "run: python -m scripts.disasters"


def test_every_row_was_measured() -> None:
    seconds = seconds_of(TEXT)
    for row, cell in zip(rows_of(seconds), CELLS, strict=True):
        assert bool(re.search(r"\n  - Seconds: [\d.]+ \+ [\d.]+$", row)) is (cell.setting is not None), row
