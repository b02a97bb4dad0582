"""What a replay finds, for tests: an application, an archive of two shards, a publisher that has their flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.replay.progress import ReplayProgress
from spark_replay.replay.publisher import Reach
from spark_replay.replay.request import FoundPublisher, ReplayRequest, ReplaySettings
from tests.support.archives import put, tx, write_archive
from wormhole.config import ApplicationConfig, ArchiveConfig, DatasetConfig, FailoverConfig
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2


def archived(folder: Path) -> ArchiveStore:
    """Shard ``a`` of three transactions, ``b`` of one."""
    files = {
        "a": [[tx(put(b"k1", b"v1")), tx(put(b"k2", b"v2"))], [tx(put(b"k1", b"v3"))]],
        "b": [[tx(put(b"k", b"v"))]],
    }
    write_archive(folder / "archive", files)
    return open_store(str(folder / "archive"), "orders")


def setting(store: ArchiveStore, *, where: str = "", failover: tuple[str, ...] = ()) -> ReplaySettings:
    """``failover``: copies of a server beside which there is another one, ``other``."""
    copies: dict[str, Any] = {"main": {"logs": {"db1": {"source": "rocksdb:///data/db1"}}}}
    if failover:
        copies = {copy: {"logs": {"db1": {"source": "db1", "kind": "mysql"}}} for copy in (*failover, "other")}
    dataset = DatasetConfig(
        name="orders",
        copies=copies,
        archive=ArchiveConfig(to=store.to),
        failover=FailoverConfig(copies=failover) if failover else None,
    )
    application = ApplicationConfig(name="cache", dataset="orders", start="earliest", where=where)
    return ReplaySettings(dataset, application, store, None, 5.0, 1 << 20, 0.0)


def flow(shard: str, marker: Datamarker, **more: Any) -> admin_pb2.FlowStatus:
    return admin_pb2.FlowStatus(flow=f"cache/{shard}", state="held", marker=marker_to_message(marker), **more)


def seen(
    *flows: admin_pb2.FlowStatus, reach: str = "127.0.0.1:1", connected: bool = True, copy: str = "main"
) -> FoundPublisher:
    state = "connected" if connected else "unreachable"
    subscribers = [
        admin_pb2.SubscriberStatus(
            application="cache",
            subscriber="s1",
            address="h:1",
            state=state,
            problem=admin_pb2.Problem(text="gone", hint="look"),
        )
    ]
    status = admin_pb2.PublisherStatus(dataset="orders", copy=copy, log="db1", flows=flows, subscribers=subscribers)
    return FoundPublisher(status, Reach(reach))


def wish(**more: Any) -> ReplayRequest:
    return ReplayRequest(**{"id": "r", "who": "me@here", "application": "cache", "mode": "log", **more})


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.moved: list[ReplayProgress] = []

    def says(self, text: str) -> None:
        self.said.append(text)

    def moves(self, progress: ReplayProgress) -> None:
        self.moved.append(progress)
