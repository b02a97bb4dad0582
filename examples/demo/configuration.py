"""The configuration that the demo plays with, as an operator would write it."""

from __future__ import annotations

from typing import Final

from examples.demo.scene import LOG, SHARDS
from wormhole.config import CoordinatorConfig

__all__ = ["configuration"]

# Sessions, grace and the wait before a restart are short, so that what takes seconds in operation takes one here. The
# change buffer is small, so that a slow application falls out of it soon.
_TEXT: Final = """\
version = 1
[coordinator]
zookeeper = "{coordinator.zookeeper}"
auth_file = "{coordinator.auth_file}"
same_user = true
session_timeout = "2s"
[publisher]
state_dir = "publisher"
change_buffer = "2MiB"
grace_period = "500ms"
handler_timeout = "30s"
heartbeat = "1s"
stop_timeout = "1s"
[monitor]
host = "demo"
listen = "127.0.0.1:0"
restart = {{ first_wait = "100ms" }}
[datasets.shop]
shard_by = {{ hash = {shards} }}
caravans = {{ max = 4 }}
[datasets.shop.copies.main.logs.{log}]
{source}
host = "demo"
[applications.cache]
dataset = "shop"
start = "earliest"
[applications.index]
dataset = "shop"
start = "earliest"
"""


def configuration(coordinator: CoordinatorConfig, source: str) -> str:
    """The TOML file. ``coordinator``: the settings of the embedded ZooKeeper; ``source``: the lines that name the
    datastore.
    """
    return _TEXT.format(coordinator=coordinator, shards=SHARDS, log=LOG, source=source)
