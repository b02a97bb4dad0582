from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import disasters
from tests.system.harness.disaster_table import CELLS


def test_seconds_stay_with_their_row_and_new_ones_replace_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, measured = tmp_path / "page.md", tmp_path / "build" / "disasters.json"
    monkeypatch.setattr(disasters, "PAGE", page)
    monkeypatch.setattr(disasters, "MEASURED", measured)
    page.write_text(f"before\n\n{disasters.table({})}\n\nbehind\n")
    assert len(disasters.rows_of({})) == len(CELLS)
    disasters.main()
    assert page.read_text() == f"before\n\n{disasters.table({})}\n\nbehind\n"
    first, second = CELLS[:2]
    measured.parent.mkdir()
    measured.write_text(json.dumps({first.name: [1.5, 0.2], "a row of before": [9, 9]}))
    disasters.main()
    measured.write_text(json.dumps({second.name: [3.0, 4.0]}))
    disasters.main()
    text = page.read_text()
    assert text.startswith("before\n\n<!-- rows -->\n- **")
    assert text.endswith("\n<!-- end -->\n\nbehind\n")
    seconds = disasters.seconds_of(text)
    assert [one for one in seconds.values() if one] == ["1.5 + 0.2", "3.0 + 4.0"]
    assert disasters.table(seconds) in text


def test_every_row_can_be_distinguished_from_the_others() -> None:
    assert len(set(disasters.rows_of({}))) == len({cell.name for cell in CELLS}) == len(CELLS)
