"""Whose process listens on a port."""

from __future__ import annotations

import os
import socket

import pytest

from wormhole.listener_owner import listener_uids, server_uids


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
