from __future__ import annotations

import pytest

from tests.support.fake_admin import FakeAdmin


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Publishers that answer without a network."""
    return FakeAdmin().install(monkeypatch)
