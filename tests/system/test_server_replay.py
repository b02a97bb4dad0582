"""An application of a MariaDB is stopped, much is written, the server's log is purged, and a mass replay brings it to
what ``SELECT`` shows.

The log holds parts of rows (``binlog_row_image = MINIMAL``), of every column type, and a column is added in the middle.
All connections have mutual TLS: publisher, archiver, applications, the administrator's command line and the tasks of
Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_replay.archive.verify import verify
from tests.support.certificates import Authority
from tests.support.databases import start_server
from tests.support.mirror import Mirror
from tests.support.server_scene import SHARDS, ServerScene
from wormhole.host.local_admin import token_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[ServerScene]:
    with start_server("mariadb") as server:
        authority = Authority(tmp_path / "certificates")
        found = ServerScene(server, tmp_path, image="MINIMAL", authority=authority)
        try:
            yield found
        finally:
            found.close()


def test_parts_of_rows_become_what_select_shows(
    spark: SparkSession, scene: ServerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # other tests have it too
    behind(scene)
    with scene.live():
        replayed(scene, "cache", "log", SHARDS)
        replayed(scene, "search", "latest", ["db1.shop"])
        replayed(scene, "search", "log", ["db1.stock"])  # its keys change: no last change of a key stands for all
    for application, mirror in scene.mirrors.items():
        scene.up_to_date(application)
        for shard in SHARDS:
            assert mirror.kinds(shard)[-4:] == ["replay_begin", "replay_end", "revoked", "assigned"], mirror.told
    scene.until_archived()
    scene.until_acknowledged("cache")
    assert scene.missing("cache") == []
    store = scene.store()
    assert store is not None
    assert verify(store, deep=True).problems == []


def behind(scene: ServerScene) -> None:
    """The applications have the first rows and are stopped; what is written then is archived and in the log no more.

    They are started again, and told."""
    scene.publisher.start()
    scene.archiver.start()
    for process in scene.subscribers.values():
        process.start()
    scene.workload.fill()
    for application, process in scene.subscribers.items():
        scene.until_acknowledged(application)
        assert process.stop() == 0
    scene.workload.change(40)
    scene.workload.enlarge()
    scene.workload.alter()
    scene.workload.change(40)
    scene.cut_log()
    token_path(scene.folder / "state").unlink()  # as from another host: the administrator's certificate has to do
    for application, process in scene.subscribers.items():
        process.start()
        scene.wait("the loss is told", partial(told_of_loss, scene.mirrors[application]))


def told_of_loss(mirror: Mirror) -> bool:
    return all("loss" in mirror.look().kinds(shard) for shard in SHARDS)


def replayed(scene: ServerScene, application: str, mode: str, shards: Iterable[str]) -> None:
    code, out, err = scene.wormhole(
        "replay", "--app", application, "--mode", mode, "--shards", ",".join(shards), "--json"
    )
    assert code == 0, out + err
    flows = json.loads(out.splitlines()[-1])["flows"]
    assert {(flow["flow"], flow["mode"], flow["state"]) for flow in flows} == {
        (f"{application}/{shard}", mode, "live") for shard in shards
    }
    assert all(flow["updates"] for flow in flows)
