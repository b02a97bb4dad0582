"""Who changes something from here."""

from __future__ import annotations

import getpass
import socket

import pytest

from wormhole.coordination.current_user import current_user


def test_a_user_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "eve")
    assert current_user() == f"eve@{socket.gethostname()}"


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no name")])
def test_a_user_id_without_a_name(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert current_user() == f"somebody@{socket.gethostname()}"
