from __future__ import annotations

import pytest

from wormhole.formats import ValueFormats, table
from wormhole.model.errors import FilterError


def test_a_field_keeps_its_slot() -> None:
    formats = ValueFormats()
    assert [formats.slot(path) for path in [("a",), ("b",), ("a", "b"), ("a",)]] == [0, 1, 2, 0]
    assert formats.paths == [("a",), ("b",), ("a", "b")]


def test_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_FIELDS", 2)
    formats = ValueFormats()
    assert [formats.slot(("a",)), formats.slot(("b",)), formats.slot(("a",))] == [0, 1, 0]
    with pytest.raises(FilterError, match="test 2 different fields already"):
        formats.slot(("c",))
