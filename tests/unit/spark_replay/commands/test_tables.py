"""``wormholectl snapshot``, ``history`` and baselines: what they take and pass on, before any Spark."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql.existing_rows.server import Server
from datastores.mysql.existing_rows.snapshot import MariaSnapshots
from datastores.mysql.existing_rows.source import MySqlTables
from publisher.stores.markers import ZooKeeperMarkerStore, open_store
from spark_replay.archive.choice import ArchivedLog
from spark_replay.archive.store import ArchiveStore
from spark_replay.commands.baselines import OpenTables, table_logs
from spark_replay.spark import pack as packing
from spark_replay.spark import session
from spark_replay.tables.folder import TableWritten, Written
from spark_replay.tables.selection import TableOptions
from tests.support.archives import put, tx, write_archive
from tests.support.cli_schema import check
from tests.support.command_line import run
from wormhole.config import FAILOVER, parse
from wormhole.coordination.port import LogGroup
from wormhole.model.errors import ConfigError, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker, LogPosition

# --- tables: ``wormholectl snapshot`` and ``history``: what they take, before anything is started ---


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def never(*given: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", never)
    monkeypatch.setattr(session, "check_spark", lambda: None)
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"v"))]]}, dataset="shop")
    file = tmp_path / "shop.toml"
    file.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.shop.archive]\nto = 'archive'\napplication = 'archive'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
        "[datasets.bare.copies.main.logs.db2]\nsource = 'rocksdb:///other'\n"
        "[applications.archive]\ndataset = 'shop'\nstart = 'earliest'\n"
    )
    return file


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("snapshot orders", "--to"),
        ("history orders", "--to"),
        ("snapshot bare --to x", "archive"),
        ("snapshot none --to x", "none"),
        ("snapshot shop --to x --until soon", "--until soon"),
        ("history shop --to x --from soon", "--from soon"),
        ("history shop --to x --type price=text", "must be TABLE:NAME=TYPE"),
        ("snapshot shop --to x --field default:city", "must be TABLE:NAME=TYPE"),
    ],
)
def test_wrong_requests(words: str, told: str, config: Path) -> None:
    code, _, err = run(*words.split(), "-c", str(config))
    assert (code, told in err) == (2, True), err


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_they_hand_on_what_was_given(command: str, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def write(spark: object, store: ArchiveStore, to: str, **given: Any) -> Written:
        seen.append((spark, store.dataset, to, given))
        return Written(to, {}, {}, {}, ())

    monkeypatch.setattr(f"spark_replay.tables.{command}.write_{command}", write)
    monkeypatch.setattr(session, "spark_session", lambda name, master: (name, master))
    options = ["-t", "a", "-t", "b", "--until", "2h", "--type", "a:x=text", "--field", "b:y=int", "--master", "local"]
    code, out, err = run(command, "shop", "--to", "s3://b/x", "-c", str(config), *options, "--json")
    assert (code, json.loads(out)["dataset"]) == (0, "shop"), err
    ((spark, dataset, to, given),) = seen
    assert (spark, dataset, to) == (("wormhole tables of shop", "local"), "shop", "s3://b/x")
    assert given["tables"] == ("a", "b")
    assert given["readings"] == {"a": TableOptions({"x": "text"}), "b": TableOptions({}, {"y": "int"})}
    assert given["now"].timestamp() * 1e6 - given["until"].at_us == pytest.approx(7200e6)
    assert ("start" in given) is (command == "history")
    assert ("previous" in given) is (command == "snapshot")


def test_the_next_snapshot_is_made_of_the_previous_one(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def write(spark: object, store: ArchiveStore, to: str, **given: Any) -> Written:
        seen.append((to, given["previous"]))
        tables = {"t": TableWritten("tables/t", 3), "u": TableWritten("tables/u", 1, ("1 row of u has no value",))}
        return Written(to, tables, {}, {}, ("1 row of u has no value",), ("nothing else",))

    monkeypatch.setattr("spark_replay.tables.snapshot.write_snapshot", write)
    monkeypatch.setattr(session, "spark_session", lambda name, master: None)
    monkeypatch.chdir(tmp_path)
    words = ["snapshot", "shop", "-c", str(config)]
    code, out, err = run(*words, "--to", "june", "--from", "may", "--json")
    assert code == 0, err
    assert [one["problems"] for one in check("tables-written", out)["tables"]] == [[], ["1 row of u has no value"]]
    code, out, err = run(*words, "--to", "s3://b/june", "--from", "s3://b/may")
    assert code == 0, err
    assert out.splitlines()[-2:] == ["no start for a replay of some tables: 1 row of u has no value", "nothing else"]
    assert seen == [(f"{tmp_path}/june", f"{tmp_path}/may"), ("s3://b/june", "s3://b/may")]


# --- baselines ---


SECRET = "correct horse"
CONFIG = """version = 1
[publisher]
state_dir = "{folder}/state"
[datasets.orders.archive]
to = "{folder}/archive"
[datasets.orders.copies.main.logs.db1]
source = "mysql://wormhole@db.invalid:3306"
password_file = "{folder}/password"
[applications.archive]
dataset = "orders"
start = "latest"
"""


@pytest.fixture
def chosen(tmp_path: Path) -> ArchivedLog:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    write_archive(tmp_path / "archive", {})
    return ArchivedLog(parse(CONFIG.format(folder=tmp_path), "shop.toml"), "orders", stored=False)


def opened(tables: object) -> str:
    """The password that the tables log in with."""
    assert isinstance(tables, MySqlTables)
    file = tables._options.login.password_file
    assert file is not None
    return file.read_text().strip()


def test_a_password_goes_with_the_task_and_into_no_text(chosen: ArchivedLog, tmp_path: Path) -> None:
    (log,) = table_logs(chosen, "main", local=False)
    (tmp_path / "password").unlink()
    there = pickle.loads(pickle.dumps(log))
    for text in (repr(log), str(log), repr(there.open), f"{there.open}"):
        assert SECRET not in text
        assert "db.invalid" not in text
    folder = tmp_path / "own"
    tables = there.open(folder)
    assert opened(tables) == SECRET
    assert tables._options.rows_dir == folder


def test_where_all_tasks_are_here_the_file_is_read_here(chosen: ArchivedLog, tmp_path: Path) -> None:
    (log,) = table_logs(chosen, "main", local=True)
    assert SECRET.encode() not in pickle.dumps(log)
    assert opened(log.open(tmp_path)) == SECRET
    assert isinstance(log.open, OpenTables)


def test_tables_of_another_server_than_the_one_known_in_zookeeper_are_refused(
    chosen: ArchivedLog, tmp_path: Path, zookeeper: str
) -> None:
    connected = f'[coordinator]\nzookeeper = "{zookeeper}"\n[publisher]\nmarkers = "zookeeper"'
    config = parse(CONFIG.format(folder=tmp_path).replace("[publisher]", connected), "shop.toml")
    server = {"number": 3, "server": "the one before", "highest": 4, "files": {}, "reset": False}
    with closing(open_store(config, "orders", "main", "db1")) as store:
        assert isinstance(store, ZooKeeperMarkerStore)
        state = store.source_state(LogGroup("orders", "main", "db1"))
        state.write("histories", {"incarnations": [server]})
    (log,) = table_logs(replace(chosen, config=config), "main", local=True)
    tables = pickle.loads(pickle.dumps(log)).open(tmp_path / "own")
    assert isinstance(tables, MySqlTables)
    place = LogPosition(3, 4, 0)
    another = Server(True, "another one", "ctl@localhost", 1 << 20, MariaSnapshots())
    with pytest.raises(SourceUnavailable, match="is the server another one, and the log is read from another"):
        tables._check_server(another, Datamarker(place, "", place))
    tables._check_server(replace(another, identity="the one before"), Datamarker(place, "", place))
    known = tables._options.state
    assert known is not None
    with pytest.raises(UsageError, match="cannot be written"):
        known.write("histories", {})


def test_what_only_zookeeper_says_is_not_connected_to(chosen: ArchivedLog) -> None:
    with pytest.raises(UsageError, match="only ZooKeeper records"):
        table_logs(replace(chosen, stored=True), "main", local=True)


def test_rows_are_not_read_beside_copies_that_serve_for_each_other(chosen: ArchivedLog) -> None:
    text = """version = 1
[datasets.orders.failover]
copies = ["main", "west"]
[datasets.orders.copies.main.logs.db1]
source = "db1"
kind = "mysql"
[datasets.orders.copies.west.logs.db1]
source = "db1"
kind = "mysql"
"""
    for copy in (FAILOVER, "main"):
        with pytest.raises(UsageError, match="dataset orders has failover") as refused:
            table_logs(replace(chosen, config=parse(text, "shop.toml")), copy, local=True)
        assert "a backfill of the archive's application" in str(refused.value.hint)


def test_a_password_file_that_cannot_be_read(chosen: ArchivedLog, tmp_path: Path) -> None:
    (tmp_path / "password").unlink()
    with pytest.raises(ConfigError, match=r"password file .* cannot be read"):
        table_logs(chosen, "main", local=False)


# --- spark ---


def test_what_was_packed_is_shown_with_the_line_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"wormhole-pubsub": "1.2", "pyarrow": "26.0", "pyspark": "4.3.0", "six": "1"}
    packed = packing.Packed(190 << 20, "3.11.7", versions, "glibc 2.36", ("libffi.so.8", "libssl.so.3"))
    asked: list[Path] = []

    def pack(to: Path) -> packing.Packed:
        asked.append(to)
        return packed

    monkeypatch.setattr(packing, "pack", pack)
    code, out, err = run("spark", "pack", "--to", "env.tar.gz")
    assert (code, err, asked) == (0, "", [Path("env.tar.gz")])
    said = " ".join(out.split())
    assert "env.tar.gz: 190 MiB, Python 3.11.7, wormhole-pubsub 1.2, pyarrow 26.0, pyspark 4.3.0" in said
    assert "Executors need of their system: glibc 2.36 or newer, libffi.so.8, libssl.so.3" in said
    assert "--archives 'env.tar.gz#env' --conf spark.pyspark.python=./env/bin/python" in said
    assert "spark_replay/submit.py --app APP" in said
