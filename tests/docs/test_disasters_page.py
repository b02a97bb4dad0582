"""docs/disasters.md shows the rows that tests/system/test_disasters.py does, word for word."""

from __future__ import annotations

from scripts.disasters import PAGE, seconds_of, table

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_rows_that_are_tested() -> None:
    assert table(seconds_of(TEXT)) in TEXT, "run: python -m scripts.disasters"
