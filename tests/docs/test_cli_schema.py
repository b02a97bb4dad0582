"""docs/cli-schema.json: every --json output is as it says, and it defines nothing that no command prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.folder_lock import FolderLock
from tests.support.archives import put, tx, write_archive
from tests.support.cli_schema import check, names
from tests.support.command_line import run
from tests.support.contenders import contending, is_there
from tests.support.eventually import until
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import attach, relay, status
from tests.unit.wormholectl.tail.test_tail import BYTES, update
from wormhole.admin.admin_service import Answer
from wormhole.coordination.port import LogGroup
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem
from wormhole.model.values import Op
from wormhole.ports.datastore import Standing
from wormhole.wire.rows import encode_row
from wormhole.wire.v1 import admin_pb2
from wormholectl.tail.show import gap_as_json, update_as_json

PUBLISHERS = [
    ("publishers", "publishers"),
    ("shards", "shards"),
    ("flows", "flows"),
    ("caravans", "caravans"),
    ("subscribers", "subscribers"),
    ("markers", "markers"),
    ("dead-letters", "flows dead-letters"),
    ("dead-letters", "flows dead-letters list cache/db1"),
    ("change", "flows pause cache/db1"),
    ("change", "flows pause cache/db1 --yes"),
    ("change", "flows dead-letters retry cache/db1 --yes"),
    ("change", "markers rewind cache/db1 --since 2h --yes"),
    ("lag", "lag cache"),
    ("lag", "lag cache --max 1d"),
    ("why-lag", "why-lag cache/db1"),
    ("why-lag", "why-lag mail/db1"),
    ("doctor", "doctor"),
]
"""What publishers are asked."""

FILES = [
    ("hosts", "hosts"),
    ("drain", "drain alpha --yes"),
    ("doctor", "doctor"),
    ("support-dump", "support-dump --output {folder}/dump.tar.gz"),
    ("config-show", "config show"),
    ("config-history", "config history"),
    ("config-check", "config check {folder}/shop.toml"),
    ("config-check", "config check {folder}/none.toml"),
    ("filters-explain", "filters explain key==1"),
    ("explain", "explain marker-purged"),
    ("explain-all", "explain"),
]
"""What can be asked of an installation by its file, besides."""

ARCHIVE = [
    ("archive-show", "archive show"),
    ("archive-show", "archive show shop --shard a --files"),
    ("archive-verify", "archive verify --deep"),
    ("archive-compact", "archive compact --dry-run"),
    ("archive-expire", "archive expire"),
    ("archive-expire", "archive expire --dry-run"),
]
"""What is asked of an archive."""

TAILED = {"tail-update", "tail-gap"}
STORED = {"config-diff", "publishers-move"}
REPLAY = {
    "replay-plan",
    "replay-progress",
    "replay-ended",
    "replay-cancelled",
}  # tests/unit/spark_replay/commands/test_replay.py
BACKFILL = {"backfill-change", "backfill-progress", "backfill-show"}  # tests/unit/wormholectl/backfill/test_commands.py
REPAIR = {"repair"}  # tests/unit/wormholectl/backfill/test_verify.py
RELAY = {"relay-show", "relay-verify", "relay-trim"}  # tests/unit/wormholectl/relay/test_commands.py
OF_SPARK = {
    "tables-exported",
    "tables-written",
    "audit",
}  # tests/integration/test_spark_tables.py, tests/unit/spark_replay/commands/test_audit.py, test_exports.py

SINKS = {"sink-check", "sink-show"}  # tests/unit/sinks/test_commands.py
TOKENS = {"tokens-create", "tokens-list", "tokens-revoke"}  # tests/unit/wormholectl/tokens/test_commands.py


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    full = status("db1")
    full.flows[0].handler.CopyFrom(admin_pb2.HandlerReport(updates=1, slowest_table="users", slowest_s=0.2))
    full.flows[1].paused = "ann@ops"
    full.relay.CopyFrom(relay())
    full.attach.CopyFrom(attach())
    bare = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db2", coordination="lost", stuck_s=9)
    bare.standby.CopyFrom(admin_pb2.Problem(text="stands by: main@alpha owns the log"))
    full.term, full.candidate = 3, "main@alpha"
    silent = Answer("h:9", None, "the publisher at h:9 does not answer")
    return FakeAdmin([Answer("h:7", full), Answer("h:8", bare), silent]).install(monkeypatch)


@pytest.mark.parametrize(("name", "command"), PUBLISHERS, ids=[command for _, command in PUBLISHERS])
def test_what_publishers_are_asked(name: str, command: str, admin: FakeAdmin) -> None:
    _, out, _ = run(*command.split(), "-p", "h:7", "--json")
    check(name, out)


@pytest.mark.parametrize(("name", "command"), FILES, ids=[command for _, command in FILES])
def test_what_an_installation_is_asked(name: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = 'state'\n[monitor]\nhost = 'alpha'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\nhost = 'alpha'\n"
    )
    ready = ready_path(tmp_path / "state", "shop", "main", "db1")
    ready.parent.mkdir(parents=True)
    write_ready(ready, ReadyFile(os.getpid(), process_started(os.getpid()) or 0, "127.0.0.1:1", "", "0.1.0", ""))
    words = command.format(folder=tmp_path).split()
    asked = [] if name in {"config-check", "filters-explain", "explain", "explain-all"} else ["-c", str(file)]
    with FolderLock(tmp_path / "state" / "monitor" / "monitor.lock", "a monitor"):
        if name == "config-history":
            assert run("drain", "alpha", "--yes", *asked)[0] == 0
        _, out, err = run(*words, *asked, "--json")
    assert out, err
    check(name, out)


@pytest.mark.parametrize(("name", "command"), ARCHIVE, ids=[command for _, command in ARCHIVE])
def test_what_an_archive_is_asked(name: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        "version = 1\n[datasets.shop.copies.main.logs.a]\nsource = 'rocksdb:///store'\n"
        "[datasets.shop.archive]\nto = 'kept'\nkeep = '1d'\n[applications.archive]\ndataset = 'shop'\nstart = "
        "'latest'\n"
    )
    store = write_archive(
        tmp_path / "kept", {"a": [[tx(put(b"k", b"v"))], [tx(put(b"k", b"w"), at_us=0)]]}, dataset="shop"
    )
    store.create_data("a", "left.parquet").close()
    if name == "archive-verify":
        (tmp_path / "kept" / "a" / "data" / store.data_files("a")[0].name).write_bytes(b"no Parquet")
    _, out, err = run(*command.split(), "-c", str(file), "--json")
    assert out, err
    check(name, out)


def test_what_is_stored(zookeeper: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f"version = 1\n[coordinator]\nzookeeper = '{zookeeper}'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
        "[applications.cache]\ndataset = 'shop'\nstart = 'latest'\n"
    )
    for command in ("diff", "apply", "diff"):
        options = ["--yes"] if command == "apply" else []
        check("config-diff", run("config", command, str(file), "--json", *options)[1])
    check("config-show", run("config", "show", "-c", str(file), "--json")[1])
    check("config-history", run("config", "history", "-c", str(file), "--json")[1])


def test_who_owns_a_log_and_a_move(zookeeper: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f"version = 1\n[coordinator]\nzookeeper = '{zookeeper}'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'mysql://w@127.0.0.1:1'\nhosts = ['alpha', 'beta', 'gamma']\n"
    )
    assert run("config", "apply", str(file), "--yes")[0] == 0
    waits = Standing("S", ready=False, problem=Problem("it is a standby", "promote it"))
    with contending(
        zookeeper,
        LogGroup("shop", "main", "db1"),
        main_alpha=Standing("S"),
        main_beta=Standing("S", lacking="U:5"),
        main_gamma=waits,
    ):
        move = ("publishers", "move", "shop/db1", "--to", "beta", "--yes", "-c", str(file), "--json")
        check("publishers-move", run(*move)[1])
        until(lambda: is_there(zookeeper, LogGroup("shop", "main", "db1"), "main@alpha"), "it stands by")
        told = check("publishers", run("publishers", "-c", str(file), "--json")[1])
    [log] = told["logs"]
    assert [one["takes_over"] for one in log["standbys"]] == [True, False]


def test_the_lines_of_a_tail() -> None:
    for row in (encode_row(Op.UPSERT, [b"k"], after=[b"\xff"]), encode_row(Op.DELETE, [b"k"])):
        check("tail-update", json.dumps(update_as_json(update(BYTES, row), "binlog.000001:4")))
    check(
        "tail-gap",
        json.dumps(gap_as_json(LogGap(LossKind.PURGED, "5", "9", "file 3 is gone"), LogPosition(1, 4, 0), "")),
    )


def test_nothing_is_defined_that_no_test_prints() -> None:
    assert (
        names()
        == {name for name, _ in [*PUBLISHERS, *FILES, *ARCHIVE]}
        | TAILED
        | STORED
        | REPLAY
        | BACKFILL
        | REPAIR
        | RELAY
        | OF_SPARK
        | SINKS
        | TOKENS
    )
