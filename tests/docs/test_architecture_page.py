"""docs/architecture.md draws the contracts that import-linter checks, and lists every implementation of each port."""

from __future__ import annotations

import pytest

from scripts.import_rules import PAGE, filled, main


def test_the_page_shows_the_contracts_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_layers_are_drawn_and_other_contracts_are_sentences() -> None:
    contracts = [
        {"name": "one", "type": "forbidden", "source_modules": ["a", "b"], "forbidden_modules": ["time"]},
        {"name": "two", "type": "layers", "layers": ["c", "a | b"]},
    ]
    page = filled("before\n<!-- import rules -->\nold\n<!-- end -->\nbehind\n", contracts)
    assert page == (
        "before\n<!-- import rules -->\n**two** (a layer may import the ones below it):\n\n    c\n    a    b\n\n"
        "- **one**: `a`, `b` may not import `time`\n<!-- end -->\nbehind\n"
    )
    with pytest.raises(ValueError, match="no place for the import rules"):
        filled("a page without marks", contracts)


def test_a_rule_that_changes_makes_the_page_stale() -> None:
    page = PAGE.read_text()
    assert filled(page, []) != page
