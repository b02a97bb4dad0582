"""docs/architecture.md draws the contracts that import-linter checks, and the stages of a flow."""

from __future__ import annotations

from itertools import product

import pytest

from publisher.push.stages import TRANSITIONS, Event, Stage
from scripts.import_rules import PAGE, filled, main


def test_the_page_shows_the_contracts_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_layers_are_drawn_and_other_contracts_are_sentences() -> None:
    contracts = [
        {"name": "one", "type": "forbidden", "source_modules": ["a", "b"], "forbidden_modules": ["time"]},
        {"name": "two", "type": "layers", "layers": ["c", "a | b"]},
    ]
    assert filled("before\n<!-- import rules -->\nold\n<!-- end -->\nbehind\n", contracts) == (
        "before\n<!-- import rules -->\n**two** (a layer may import the ones below it):\n\n    c\n    a    b\n\n"
        "- **one**: `a`, `b` may not import `time`\n<!-- end -->\nbehind\n"
    )
    with pytest.raises(ValueError, match="no place for the import rules"):
        filled("a page without marks", contracts)


def test_a_rule_that_changes_makes_the_page_stale() -> None:
    page = PAGE.read_text()
    assert filled(page, []) != page


def _drawing() -> str:
    """The stages as Mermaid draws them: those with a subscriber in a box, with the arrows that all of them have at
    it."""
    assigned = set(TRANSITIONS[Event.RELEASE])
    inside, outside = [], []
    for stage, event in product(Stage, Event):
        last = TRANSITIONS[event].get(stage, stage)
        if last is stage:
            continue
        if stage in assigned and last in assigned:
            inside.append(f"        {stage.value} --> {last.value}: {event.value}")
        elif last in assigned:
            inside.append(f"        [*] --> {last.value}")
            outside.append(f"    {stage.value} --> assigned: {event.value}")
        elif stage in assigned:
            assert set(TRANSITIONS[event]) == assigned
            outside.append(f"    assigned --> {last.value}: {event.value}")
        else:
            outside.append(f"    {stage.value} --> {last.value}: {event.value}")
    boxed = ["    state assigned {", *dict.fromkeys(inside), "    }"]
    return "\n".join(["stateDiagram-v2", *boxed, "    [*] --> unassigned", *dict.fromkeys(outside)])


def test_the_page_draws_the_stages_of_a_flow() -> None:
    assert f"```mermaid\n{_drawing()}\n```\n" in PAGE.read_text(), f"draw this:\n{_drawing()}"
