"""What the interpreted pass takes."""

from __future__ import annotations

from pathlib import Path

from scripts.prepare import ROOT, hot_sources
from scripts.suite import near_hot


def test_the_unit_tests_of_every_hot_module_are_near_it() -> None:
    near = near_hot([Path("wormhole/wire/tally.py"), Path("publisher/sources/mysql/decode/cells.py")])
    assert near[-1] == "tests/unit/wormhole/wire/test_tally.py"
    assert "tests/unit/publisher/sources" in near
    assert not any("cells" in place for place in near), "its folder is there"


def test_all_of_it_is_there() -> None:
    near = near_hot([source.relative_to(ROOT) for source in hot_sources()])
    assert [place for place in near if not (ROOT / place).exists()] == []
