"""A local user without rights meets the ZooKeeper that `wormholectl up` embeds: nothing is read, written, deleted or
exhausted."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.marked import marked
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.up import Up
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.kazoo_client import connect_blocking, disconnect_blocking, new_client
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.model.errors import ConfigError

NOBODY = 65534

# Imports as the user of the tests, whose packages another one may not read, and attacks as nobody.
ATTACKER = """
import encodings.idna, json, os, sys
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE
hosts, user = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
assert os.geteuid() == user

def attempt(attack):
    try:
        return str(attack())
    except Exception as error:
        return type(error).__name__

def replace(client):
    record = json.loads(client.get("/wormhole/publishers/shop/main/db1")[0]) | {"address": "127.0.0.1:1"}
    client.set("/wormhole/publishers/shop/main/db1", json.dumps(record).encode())
    return "replaced"

def password(client):
    dataset = json.loads(client.get("/wormhole/datasets/shop")[0])
    log = dataset["copies"]["main"]["logs"]["db1"]
    log |= {"source": "mysql://wormhole@127.0.0.1:1", "password_file": "/etc/shadow"}
    client.set("/wormhole/datasets/shop", json.dumps(dataset).encode())
    return "set"

results = {}
for name, credentials in {"no": None, "wrong": [("digest", "wormhole:guess")]}.items():
    client = KazooClient(hosts, auth_data=credentials)
    client.start(60)
    attacks = {
        "list /": lambda: client.get_children("/"),
        "list the tree": lambda: client.get_children("/wormhole"),
        "list /zookeeper": lambda: client.get_children("/zookeeper"),
        "read a dataset": lambda: client.get("/wormhole/datasets/shop")[0],
        "read a publisher": lambda: client.get("/wormhole/publishers/shop/main/db1")[0],
        "read who may what": lambda: client.get_acls("/wormhole/access"),
        "replace a publisher": lambda: replace(client),
        "read a file of root as a password": lambda: password(client),
        "register a subscriber": lambda: client.create("/wormhole/applications/cache/subscribers/eve", b"{}", ephemeral=True, makepath=True),
        "write a flow": lambda: client.create("/wormhole/applications/cache/flows/eve", b"{}", makepath=True),
        "drain the host": lambda: client.create("/wormhole/hosts/eve", b"{}"),
        "a new root": lambda: client.create("/eve" + name, b"x" * 1000),
        "a new node of the tree": lambda: client.create("/wormhole/eve" + name, b"x" * 1000),
        "fill /zookeeper": lambda: client.create("/zookeeper/eve" + name, b"x" * 1000),
        "a quota": lambda: client.create("/zookeeper/quota/eve" + name, b"x"),
        "open it": lambda: client.set_acls("/wormhole", OPEN_ACL_UNSAFE),
        "delete the publisher": lambda: client.delete("/wormhole/publishers/shop/main/db1"),
        "delete everything": lambda: client.delete("/wormhole", recursive=True),
    }
    results |= {f"{name} credentials: {what}": attempt(attack) for what, attack in attacks.items()}
    client.stop()
print(json.dumps(results))
"""  # noqa: E501
REFUSED = {"NoAuthError"}

# Takes a port as nobody; a line for the start and for each connection on which something was sent.
IMPOSTOR = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    while True:
        connection, _ = server.accept()
        sent = connection.recv(1000)
        if sent:
            print(sent, flush=True)
"""


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def attacked(hosts: str) -> dict[str, str]:
    """What each attack of another user came to."""
    done = subprocess.run(
        [sys.executable, "-c", ATTACKER, hosts, str(NOBODY)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, str] = json.loads(done.stdout)
    return results


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    store = RocksWriter(tmp_path / "store")
    store.put(b"k", b"v")
    with closing(Up(tmp_path, f'source = "rocksdb://{store.path}"')) as made:
        yield made
    store.exit()


def test_another_user_reads_and_changes_nothing_of_a_real_up(up: Up) -> None:
    code, text = up.up()
    assert code == 0, text
    results = attacked(up.record()["coordinator"].partition("/")[0])
    assert {what: came for what, came in results.items() if came not in REFUSED} == {}
    assert "cache/db1" in up.does("flows", "-c", str(up.file))[1]  # its own user needs to do nothing
    secret = (up.folder / "zookeeper" / "credentials").read_text().strip().partition(":")[2].encode()
    assert len(secret) >= 43
    for pid, command in marked(up.mark).items():
        assert secret not in command.encode() + Path(f"/proc/{pid}/environ").read_bytes()
    holders = {path.name for path in up.folder.rglob("*") if path.is_file() and secret in path.read_bytes()}
    assert holders == {"credentials"}  # no log, no configuration, no file of ZooKeeper's
    assert up.down()[0] == 0


@pytest.fixture
def server() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(private=True) as made:
        yield made


@contextlib.contextmanager
def impostor(port: str) -> Iterator[subprocess.Popen[str]]:
    """Another user's process on a port that ours left."""
    with subprocess.Popen(
        [sys.executable, "-c", IMPOSTOR, port, str(NOBODY)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.allow_blocking("an impostor is started while the session is without contact")
async def test_a_process_of_another_user_on_our_port_gets_no_credentials(
    server: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    session = ZooKeeperSession(server.settings)
    await session.start()
    server.kill()
    refused = f"is served by user {NOBODY}, not by user 0"
    with impostor(server.hosts.partition(":")[2]) as process:
        await eventually(lambda: refused in caplog.text, "the refusal of the session that reconnects")
        with pytest.raises(ConfigError, match=refused) as caught:  # and one that begins
            connect_blocking(new_client(server.settings), server.settings)
        assert "credentials are not sent" in str(caught.value)
        await session.stop()
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_requests_that_are_never_finished_do_not_end_it(server: EmbeddedZooKeeper) -> None:
    owner = new_client(server.settings)
    connect_blocking(owner, server.settings)
    host, _, port = server.hosts.partition(":")
    with contextlib.ExitStack() as stack:
        held = set()
        for _ in range(300):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(socket.create_connection((host, int(port)), 5))
                connection.sendall((1_000_000).to_bytes(4, "big") + b"x")
                held.add(connection)
        while len(held) > 200:  # those beyond the bound are closed; the others wait for the rest of their request
            ended, _, _ = select.select(held, [], [], PATIENCE_S)
            assert ended, f"{len(held)} requests of 1 MiB are held"
            held -= set(ended)
        assert owner.get_children("/wormhole")
        assert server.alive
    disconnect_blocking(owner)
