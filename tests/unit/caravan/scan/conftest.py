"""Scans that wait no longer for each other than a test has to."""

from __future__ import annotations

import pytest

from caravan import fleet
from caravan.scan import scanner


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "_TICK_S", 0.01)
    monkeypatch.setattr(fleet, "_TICK_S", 0.01)
    monkeypatch.setattr(fleet, "_SETTLED_S", 0.05)
