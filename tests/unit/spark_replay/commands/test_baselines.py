"""How the tasks of a baseline reach a database: the password is in no text, and a file only where there is one."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.mysql.existing_rows.server import Server
from datastores.mysql.existing_rows.snapshot import MariaSnapshots
from datastores.mysql.existing_rows.source import MySqlTables
from publisher.stores.markers import ZooKeeperMarkerStore, open_store
from spark_replay.archive.choice import ArchivedLog
from spark_replay.commands.baselines import OpenTables, table_logs
from tests.support.archives import write_archive
from wormhole.config import FAILOVER, parse
from wormhole.coordination.port import LogGroup
from wormhole.model.errors import ConfigError, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker, LogPosition

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
    with pytest.raises(UsageError, match="only ZooKeeper says"):
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
