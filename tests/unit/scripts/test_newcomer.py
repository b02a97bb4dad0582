"""What the newcomer's clock counts. ``make dist`` runs it."""

from __future__ import annotations

import pytest

from scripts import debian, newcomer
from scripts.quickstart import DATASTORES, PAGE, Block, read_page


@pytest.mark.parametrize(
    ("language", "code", "count"),
    [("sh", "a\nb", 2), ("sql", "A;\nB\n  C;", 2), ("sql", "A; B;", 2), ("text", "a\nb", 0)],
)
def test_commands_are_lines_and_statements(language: str, code: str, count: int) -> None:
    assert newcomer.commands(Block(language, code, frozenset(DATASTORES), second=False)) == count


def test_the_page_has_what_the_clock_looks_for() -> None:
    blocks = [block for step in read_page(PAGE.read_text()) for block in step.blocks if "MariaDB" in block.only]
    reached = ["pip install", "wormholectl tail", "wormholectl up", "python subscriber.py"]
    found = [word for block in blocks for word in reached if word in block.code]
    assert found == reached


def test_the_table_of_others_is_found() -> None:
    header, _, *rows = newcomer._others()
    assert header.startswith("| product |")
    assert len(rows) == 3


def test_a_machine_on_which_it_cannot_run_gets_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "without_chroot", lambda: "only root may")
    assert newcomer.main() == 0
    assert "the clock does not run here: only root may" in capsys.readouterr().out
