"""Whose sockets are at the ends of connections, on this host and in prepared tables."""

from __future__ import annotations

import os
import socket

import pytest

from wormhole.host.socket_table import connection_uid, end_uids, listener_uids, rows_of, server_uids

# As in proc_pid_net(5): a little-endian machine's table, which the tests run on.
HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
ROW = b"   0: %s %s 01 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0000000000000000 20 4 30 10 -1"


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
)
def test_a_listener_is_seen_wherever_a_loopback_connection_arrives(family: int, host: str) -> None:
    with socket.create_server((host, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert listener_uids(port) == {os.geteuid()}
    assert listener_uids(port) == frozenset()


def test_the_other_end_is_seen_before_and_after_it_is_accepted_and_without_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(server.getsockname()) as client:
            own = client.getsockname()[1]
            assert server_uids(port, own) == {os.geteuid()}
            accepted, _ = server.accept()
            server.close()
            assert server_uids(port, own) == {os.geteuid()}
            accepted.close()
            assert server_uids(port, own + 1) == frozenset()


def test_a_connection_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert listener_uids(client.getsockname()[1]) == frozenset()


def test_the_end_of_a_connection_has_a_user_once_it_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ends = client.getpeername(), client.getsockname()
        assert connection_uid(*ends) is None
        accepted, _ = server.accept()
        with accepted:
            assert connection_uid(*ends) == os.geteuid()
    assert connection_uid(("192.0.2.1", 3306), ends[1]) is None


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        (b"0100007F", "127.0.0.1"),
        (b"0000000000000000FFFF00000100007F", "127.0.0.1"),
        (b"00000000000000000000000001000000", "::1"),
    ],
)
def test_the_rows_of_a_table(address: bytes, plain: str) -> None:
    ends = address + b":0CEA", address + b":C001"
    table = [HEAD, ROW % (*ends, 27, 9), ROW % (*reversed(ends), 0, 9), ROW % (*ends, 0, 0), b"", b"0: 1:0CEA"]
    accepted, unaccepted = rows_of(table, 3306)
    assert (accepted.local, accepted.remote, accepted.uid) == ((plain, 3306), (plain, 49153), 27)
    assert accepted.held
    assert not unaccepted.held
    assert not accepted.listens


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "127.0.0.2"])
def test_an_end_has_the_users_of_its_listener_and_of_what_it_accepted(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        asked = "127.0.0.1" if host == "0.0.0.0" else host
        assert end_uids([asked], port) == {os.geteuid()}
        with socket.create_connection((asked, port)):
            accepted, _ = server.accept()
            server.close()
            assert end_uids(["192.0.2.1", asked], port) == {os.geteuid()}
            assert end_uids(["127.0.0.3"], port) == frozenset()
            accepted.close()
            assert end_uids([asked], port) == frozenset()
