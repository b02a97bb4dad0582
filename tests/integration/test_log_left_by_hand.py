"""A publisher in a process of its own finds a tree of ZooKeeper that was copied, or written by hand: nodes that stay
where those of processes were, and numbers that fit nowhere. It serves its log, and says what it replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.command_line import run
from tests.support.eventually import until
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter

OLD = {"host": "old", "pid": 1, "address": "127.0.0.1:1", "started": 1.0, "copy": "main"}
ABLE = {
    "pid": 1, "address": "127.0.0.1:1", "started": 1.0, "rank": 0, "server": "", "lacking": "", "ready": True,
    "waits": "", "hint": "", "since": 1.0,
}  # fmt: skip
TERM = {"number": 1 << 64, "claim": "x", "terms": []}
FLOW = {"owner": "o", "subscriber": "s", "epoch": (1 << 63) - 1, "state": "live"}
LEFT = {
    "logs/shop/main/db1/owner": OLD,
    "logs/shop/main/db1/owner/below": {},
    "logs/shop/main/db1/claims/left/below": {},
    "logs/shop/main/db1/term": TERM,
    "logs/shop/main/db1/move": {"to": "main@nowhere", "by": "eve", "at": 1e300},
    "logs/shop/main/db1/candidates/main@h1": ABLE,
    "logs/shop/main/db1/candidates/main@ghost": ABLE,
    "publishers/shop/main/db1": OLD,
    "applications/cache/flows/db1": FLOW,
}
APPLICATION = '[applications.cache]\ndataset = "shop"\nstart = "earliest"\n'


@pytest.fixture
def publisher(zookeeper: str, tmp_path: Path) -> Iterator[PublisherProcess]:
    writer = RocksWriter(tmp_path / "store")
    writer.put(b"k", b"v")
    made = PublisherProcess(
        tmp_path, f'source = "rocksdb://{writer.path}"\nhost = "h1"', APPLICATION, publisher='markers = "zookeeper"'
    )
    static, here = "static = true", f'zookeeper = "{zookeeper}"\nsession_timeout = "3s"\n[monitor]\nhost = "h1"'
    made.config.write_text(made.config.read_text().replace(static, here))
    yield made
    made.kill()
    writer.exit()


@pytest.fixture
def tree(zookeeper: str) -> Iterator[KazooClient]:
    hosts, _, root = zookeeper.partition("/")
    client = KazooClient(hosts)
    client.start()
    client.ensure_path(f"/{root}")
    client.chroot = f"/{root}"
    yield client
    client.stop()
    client.close()


def serves(publisher: PublisherProcess) -> int:
    """The term in which it serves; 0: it does not, or not yet."""
    answer = publisher.answer()
    return 0 if answer is None or answer.status is None or not answer.status.flows else answer.status.term


def test_a_log_is_served_whatever_was_left_in_its_place(
    zookeeper: str, publisher: PublisherProcess, tree: KazooClient
) -> None:
    """Red before: it stood by for a process that there was not, and was ready; or it ended, again and again."""
    assert run("config", "apply", str(publisher.config), "--yes")[0] == 0
    for path, record in LEFT.items():
        tree.create(path, json.dumps(record).encode(), makepath=True)
    publisher.start()
    assert until(lambda: serves(publisher), publisher.tail) == 2
    said = publisher.output.read_text()
    for node in ("owner", "claims/left", "candidates/main@h1", "candidates/main@ghost", "term", "move"):
        assert f"/logs/shop/main/db1/{node}" in said, node
    assert "epoch must be less than or equal to" in said
    assert "Traceback" not in said
    assert json.loads(tree.get("publishers/shop/main/db1")[0])["pid"] == publisher.pid

    record = json.loads(tree.get("logs/shop/main/db1/term")[0])  # and while it serves
    tree.set("logs/shop/main/db1/term", json.dumps(record | {"number": 1 << 64}).encode())
    tree.delete("logs/shop/main/db1/owner")
    until(lambda: serves(publisher) > 2, publisher.tail)
    code, out, err = run("publishers", "-c", zookeeper)
    assert (code, "main@ghost" in out) == (0, False), out + err
    assert "Traceback" not in publisher.output.read_text()
