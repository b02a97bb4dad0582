"""docs/sink-types.md shows what the code does. That servers do the same is tried in
tests/integration/test_sink_tables.py."""

from __future__ import annotations

from scripts.sink_types import PAGE, filled


def test_the_page_has_the_present_types() -> None:
    page = PAGE.read_text()
    assert page == filled(page)
    assert filled(page.replace("| `BOOL` |", "| `TRUTH` |")) == page
