"""How the kazoo client is made and what its failures become."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.connection import ConnectionHandler

from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, until
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_client import (
    LOST_ERRORS,
    connect_blocking,
    disconnect_blocking,
    hosts_and_root,
    lost,
    new_client,
)
from wormhole.model.errors import CoordinationLost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk1:1", (("zk1:1",), "")),
        ("zk1:1, zk2:2/a/b", (("zk1:1", "zk2:2"), "/a/b")),
        ("zk1:1/", (("zk1:1",), "")),
    ],
)
def test_hosts_and_root(text: str, expected: object) -> None:
    assert hosts_and_root(CoordinatorConfig(zookeeper=text)) == expected


def test_tls_files_and_credentials_reach_the_client(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("host")
    (tmp_path / "auth").write_text("user:password\n")
    client = new_client(CoordinatorConfig(zookeeper="zk1:1", tls=tls, auth_file=tmp_path / "auth"))
    assert (client.use_ssl, client.verify_certs, client.check_hostname) == (True, True, True)
    assert (client.certfile, client.keyfile, client.ca) == (str(tls.cert), str(tls.key), str(tls.ca))
    assert list(client.auth_data) == [("digest", "user:password")]
    assert client.acl_for("/anything")[0].id.scheme == "auth"  # its own


def test_nothing_answers() -> None:
    settings = CoordinatorConfig(zookeeper="127.0.0.1:1", connect_timeout=0.2)
    with pytest.raises(CoordinationLost, match=r"127\.0\.0\.1:1 does not answer within 0\.2 s"):
        connect_blocking(new_client(settings), settings)


@pytest.mark.parametrize(("asked", "granted"), [(0.1, 0.4), (5.0, 5.0), (600.0, 120.0)])
def test_the_granted_session_timeout_is_reported(zookeeper_hosts: str, asked: float, granted: float) -> None:
    told: list[tuple[float, float]] = []
    settings = CoordinatorConfig(zookeeper=zookeeper_hosts, session_timeout=asked)
    before = time.monotonic()
    client = new_client(settings, lambda *what: told.append(what))
    connect_blocking(client, settings)
    after = time.monotonic()
    disconnect_blocking(client)
    [(seconds, when)] = told
    assert seconds == pytest.approx(granted, rel=0.01)
    assert before <= when < after, "when the session was asked for"


def test_a_lost_answer_says_what_it_was_for() -> None:
    error = lost("read /x", CoordinatorConfig(zookeeper="zk1:1"), TimeoutError())
    assert str(error).startswith("no contact with ZooKeeper zk1:1 (TimeoutError): read /x [coordination-lost]. Next: ")


def test_an_answer_that_was_left_out_ends_the_session_alone(
    zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, missing = CoordinatorConfig(zookeeper=zookeeper_hosts, session_timeout=20.0), [False]
    read = ConnectionHandler._read_response

    def left_out(self: Any, header: Any, buffer: Any, offset: Any) -> Any:
        """As if the request of the oldest one that waits had no answer."""
        if missing[0]:
            missing[0] = False
            header = header._replace(xid=header.xid + 1)
        return read(self, header, buffer, offset)

    monkeypatch.setattr(ConnectionHandler, "_read_response", left_out)
    client = new_client(settings)
    connect_blocking(client, settings)
    session = client._session_id
    missing[0] = True
    with pytest.raises(LOST_ERRORS):
        client.exists_async("/").get(timeout=PATIENCE_S)
    until(lambda: client.connected and client._session_id != session, "it has another session")
    client.exists_async("/").get(timeout=PATIENCE_S)
    disconnect_blocking(client)
