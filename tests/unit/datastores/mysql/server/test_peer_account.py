from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.mysql.server import peer_account
from datastores.mysql.server.peer_account import doubt_local, owner


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listening:
        client = socket.create_connection(listening.getsockname()[:2])
        server, _ = listening.accept()
        with client, server:
            yield client, server


def test_the_owner_of_a_connection_on_this_host(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    assert owner(client) == os.geteuid()
    assert doubt_local(client) == ""


def test_a_connection_that_nobody_took_has_no_owner() -> None:
    # The kernel lists it as root's.
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        assert owner(client) is None
        assert doubt_local(client) is None


@pytest.mark.parametrize(
    ("uid", "name", "trusted"),
    [
        (0, "root", True),
        (os.geteuid(), "me", True),
        (27, "mysql", True),
        (112, "mariadb", True),
        (1000, "ada", False),
        (5, "", False),
    ],
)
def test_who_may_run_the_database(uid: int, name: str, trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_account, "owner", lambda _: uid)
    monkeypatch.setattr(peer_account, "_name", lambda _: name)
    with socket.socket() as any_socket:
        doubt = doubt_local(any_socket)
    assert doubt == "" if trusted else doubt is not None and f"runs as uid {uid}" in doubt


def test_a_socket_is_trusted_by_its_folder_or_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(str(path))
        listening.listen()
        client.connect(str(path))
        assert owner(client) == os.geteuid()
        assert doubt_local(client, str(path)) == ""
        monkeypatch.setattr(peer_account, "owner", lambda _: 1000)
        tmp_path.chmod(0o755)
        assert doubt_local(client, str(path)) == ""
        tmp_path.chmod(0o1777)
        doubt = doubt_local(client, str(path))
        assert doubt is not None
        assert "runs as uid 1000" in doubt


def test_an_account_without_a_name() -> None:
    assert peer_account._name((1 << 31) - 7) == ""
