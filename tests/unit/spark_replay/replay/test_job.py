from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_replay.replay import flow_plans, job, mode_selection
from spark_replay.replay.job import Replay, run_replay, setting_of
from spark_replay.spark import session
from tests.support.archives import write_archive
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer, Proven
from wormhole.config import ArchiveConfig, TlsFiles, load
from wormhole.coordination.port import StoredConfig
from wormhole.host.where import Where
from wormhole.model.errors import StreamBroken, UnknownApplication, UsageError
from wormhole.wire.v1 import admin_pb2

CONFIG = """version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[applications.cache]
dataset = "shop"
start = "earliest"
"""


def test_what_is_configured_of_an_application_and_its_archive(tmp_path: Path) -> None:
    config = tmp_path / "wormhole.toml"
    config.write_text(CONFIG)
    where = Where(coordinator=str(config))
    with pytest.raises(UnknownApplication, match="cahe") as caught:
        setting_of(where, "cahe")
    assert "cache" in str(caught.value.hint)
    with pytest.raises(UsageError, match="has no archive"):
        setting_of(where, "cache")


def test_executors_are_started_before_a_flow_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []

    class Jobs:
        def __init__(self, *_: object) -> None:
            pass

        def warm(self) -> None:
            came.append("executors")

    def start(wish: object, setting: object, plans: object, look: object, jobs: Jobs, told: object) -> Any:
        return SimpleNamespace(run=lambda: came.append("held"))

    for module, names in (
        (session, ("check_spark", "spark_session", "local_slots")),
        (flow_plans, flow_plans.__all__),
        (mode_selection, mode_selection.__all__),
    ):
        for name in names:
            monkeypatch.setattr(module, name, MagicMock())
    monkeypatch.setattr(flow_plans, "nobody_takes", lambda *_: None)
    monkeypatch.setattr(flow_plans, "plan", lambda *_: [])
    monkeypatch.setattr(job, "Jobs", Jobs)
    monkeypatch.setattr(job, "Driver", start)
    for name in ("_Look", "setting_of", "_request"):
        monkeypatch.setattr(job, name, MagicMock(return_value=MagicMock(snapshot="")))
    run_replay(Where(), Replay("cache"), MagicMock())
    assert came == ["executors", "held"]


def kept(folder: Path) -> Path:
    """A configuration with an archive."""
    archive = '[datasets.shop.archive]\nto = "kept"\n[applications.archive]\ndataset = "shop"\nstart = "earliest"\n'
    (folder / "wormhole.toml").write_text(CONFIG + archive)
    write_archive(folder / "kept", {}, dataset="shop")
    return folder / "wormhole.toml"


def test_certificates_are_found_where_the_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kept(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = TlsFiles(cert=Path("a.crt"), key=Path("a.key"), ca=Path("ca.pem"))
    setting = setting_of(Where(coordinator=config.name, tls=given), "cache")
    assert setting.tls is not None
    assert (setting.tls.cert, setting.store.to) == (tmp_path / "a.crt", str(tmp_path / "kept"))


def test_a_file_says_where_its_archive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not ZooKeeper, where others may write: rows of a forged archive would be pushed."""
    config = kept(tmp_path)
    honest = load(config)
    forged = honest.datasets["shop"].model_copy(update={"archive": ArchiveConfig(to=str(tmp_path / "forged"))})
    stored = StoredConfig({"shop": forged}, honest.applications, 1)
    monkeypatch.setattr(job, "with_coordinator", lambda *_: stored)
    assert setting_of(Where(coordinator=str(config)), "cache").store.to == str(tmp_path / "kept")


def test_a_publisher_is_found_again_although_another_is_silent_or_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(log: str) -> Answer:
        return Answer(f"{log}:1", admin_pb2.PublisherStatus(dataset="shop", copy="main", log=log))

    def proven(answer: Answer) -> Proven:
        if answer.address == "db2:1":
            raise UsageError("nothing shows that it is the publisher")
        return Proven(None, answer.address)

    monkeypatch.setattr(admin_service, "ask", lambda _: [answer("db1"), answer("db2"), Answer("db3:1", None, "silent")])
    monkeypatch.setattr(admin_service, "proven", proven)
    look = job._Look(Where())
    assert [one.reach.address for one in look(lambda status: status.log == "db1")] == ["db1:1"]
    with pytest.raises(UsageError):
        look(lambda status: status.log == "db2")
    with pytest.raises(StreamBroken, match="silent"):
        look(lambda status: status.log == "db3")
    with pytest.raises(StreamBroken, match="silent"):
        look.all()
