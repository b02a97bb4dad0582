from __future__ import annotations

import pytest

from tests.support.fake_admin import FakeAdmin
from wormholectl.shared.errors import DEBUG


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        DEBUG,
        "WORMHOLE_COORDINATOR",
        "WORMHOLE_COORDINATOR_AUTH_FILE",
        "WORMHOLE_ARCHIVE",
        "WORMHOLE_TLS_CERT",
        "WORMHOLE_TLS_KEY",
        "WORMHOLE_TLS_CA",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    return FakeAdmin().install(monkeypatch)
