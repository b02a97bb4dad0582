from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.source.mysql import peer
from publisher.source.mysql.peer import doubt_local, owner, row_owner

# As in proc_pid_net(5): a little-endian machine's table, which the tests run on.
_HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
_ROW = b"   0: %s %s 01 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0000000000000000 20 4 30 10 -1\n"
_SERVER, _CLIENT = b"0100007F:0CEA", b"0100007F:C001"
_SIX = b"0000000000000000FFFF0000"
LOCAL, REMOTE = ("127.0.0.1", 3306), ("127.0.0.1", 49153)


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


@pytest.mark.parametrize("six", [b"", _SIX])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(_SERVER, _CLIENT, 27, 9)], 27),
        ([(_SERVER, _CLIENT, 0, 0)], None),
        ([(_CLIENT, _SERVER, 0, 9)], None),
        ([(_SERVER, b"00000000:0000", 0, 8), (_SERVER, _CLIENT, 65534, 9)], 65534),
        ([], None),
    ],
)
def test_the_row_of_a_connection(rows: list[tuple[bytes, bytes, int, int]], expected: int | None, six: bytes) -> None:
    table = [_HEAD, *(_ROW % (six + local, six + remote, uid, inode) for local, remote, uid, inode in rows)]
    assert row_owner(table, local=LOCAL, remote=REMOTE) == expected


def test_the_row_of_an_ipv6_connection() -> None:
    one = b"00000000000000000000000001000000"
    table = [_HEAD, _ROW % (one + b":0CEA", one + b":C001", 27, 9)]
    assert row_owner(table, local=("::1", 3306), remote=("::1", 49153)) == 27


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
    monkeypatch.setattr(peer, "owner", lambda _: uid)
    monkeypatch.setattr(peer, "_name", lambda _: name)
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
        monkeypatch.setattr(peer, "owner", lambda _: 1000)
        tmp_path.chmod(0o755)
        assert doubt_local(client, str(path)) == ""
        tmp_path.chmod(0o1777)
        doubt = doubt_local(client, str(path))
        assert doubt is not None
        assert "runs as uid 1000" in doubt


def test_an_account_without_a_name() -> None:
    assert peer._name((1 << 31) - 7) == ""
