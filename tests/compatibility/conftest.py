"""What the release before stored and sent, as fixtures/README.md tells; each test reads a copy of it with the
present code."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from kazoo.client import KazooClient

_FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy of every file."""
    return shutil.copytree(_FIXTURES, tmp_path / "before")


@pytest.fixture
def planted(zookeeper: str) -> str:
    """``host:port/root`` of a ZooKeeper that holds every node, with the versions that they had."""
    hosts, _, root = zookeeper.partition("/")
    client = KazooClient(hosts)
    client.start()
    try:
        for path, node in sorted(json.loads((_FIXTURES / "zookeeper.json").read_text()).items()):
            data = base64.b64decode(node["data"])
            client.create(f"/{root}{path}", data, makepath=True)
            for _ in range(node["version"]):
                client.set(f"/{root}{path}", data)
    finally:
        client.stop()
        client.close()
    return zookeeper
