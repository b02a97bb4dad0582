"""``wormholectl tail`` of real servers: no configuration, no ZooKeeper, and the password nowhere to be seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datastores.mysql.log import dump
from tests.support.databases import DatabaseServer
from tests.support.fault_proxy import FaultProxy
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogReader
from wormholectl.app import app
from wormholectl.logs import segment_stream
from wormholectl.logs.opened import open_log
from wormholectl.tail.log_tail import TailEvents, TailOptions, tail_source


class Tail:
    """Runs ``wormholectl tail`` of a server to the end of its log."""

    def __init__(self, server: DatabaseServer, folder: Path) -> None:
        self.url = f"{server.flavour}://{server.user}@{server.host}:{server.port}"
        self._password_file = folder / "password"
        self._password_file.write_text(server.password)
        self._password_file.chmod(0o600)

    def invoke(self, *arguments: str) -> Result:
        result = CliRunner().invoke(app, ["tail", *arguments, "--no-follow"])
        assert "a hole" not in result.output
        assert "a%20hole" not in result.output
        return result

    def updates(self, *options: str) -> list[dict[str, Any]]:
        result = self.invoke(self.url, "--password-file", str(self._password_file), "--json", *options)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def tail(database_server: DatabaseServer, tmp_path: Path) -> Tail:
    return Tail(database_server, tmp_path)


def test_a_filter_on_a_column_that_a_table_lacks_is_warned_about(
    database_server: DatabaseServer, tail: Tail, tmp_path: Path
) -> None:
    database_server.sql(
        "CREATE DATABASE tail_columns",
        "CREATE TABLE tail_columns.users (id INT PRIMARY KEY, email VARCHAR(9))",
        "CREATE TABLE tail_columns.log (id INT PRIMARY KEY)",
        "CREATE VIEW tail_columns.ids AS SELECT id FROM tail_columns.users",
    )
    try:
        wanted, password = 'email == "x"', ("--password-file", str(database_server.password_file))
        lacks = "warning: {}tail_columns.log has no column email: that test is unknown there, which passes, so all its"
        result = tail.invoke(f"{tail.url}/tail_columns", "--filter", wanted, *password)
        assert (result.exit_code, lacks.format("") in result.stderr) == (0, True)
        assert "no column" not in tail.invoke(tail.url, "-t", "*.users", "--filter", wanted, *password).stderr
        nothing = tail.invoke(f"{tail.url}/nosuch", *password)
        assert nothing.exit_code == 0
        assert 'warning: no table that this account may see fits table matches "nosuch.*". Next: ' in nothing.stderr
        explain = ["filters", "explain", wanted, "--source", f"{tail.url}/tail_columns", *password]
        result = CliRunner().invoke(app, [*explain, "--json"])
        assert result.exit_code == 0, result.stderr
        assert "tail_columns.log has no column email" in json.loads(result.stdout)["warnings"][0]
        assert lacks.format("") in CliRunner().invoke(app, explain).stderr
        config = tmp_path / "shop.toml"
        config.write_text(
            f"""version = 1
            datasets.shop.copies.main.logs.db1 = {{ source = "{tail.url}", password_file = "password" }}
            [applications.cache]
            dataset = "shop"
            start = "latest"
            tables = ["tail_columns.*"]
            where = '{wanted}'
            """
        )
        result = CliRunner().invoke(app, ["config", "check", str(config)])
        assert (result.exit_code, lacks.format("applications.cache.where: ") in result.stderr) == (0, True)
    finally:
        database_server.sql("DROP DATABASE tail_columns")


def test_changes_of_chosen_tables_from_a_gtid_and_from_a_place(database_server: DatabaseServer, tail: Tail) -> None:
    server = database_server
    variable = "gtid_executed" if server.flavour == "mysql" else "gtid_binlog_pos"
    server.sql(
        "CREATE DATABASE tail_shop",
        "CREATE TABLE tail_shop.users (id INT PRIMARY KEY, name VARCHAR(9))",
        "CREATE TABLE tail_shop.other (id INT PRIMARY KEY)",
    )
    try:
        [(start,)] = server.sql(f"SELECT @@GLOBAL.{variable}")
        server.sql("INSERT INTO tail_shop.users VALUES (1, 'Zoë')", "INSERT INTO tail_shop.other VALUES (1)")
        server.sql("CREATE DATABASE tail_shop2", "CREATE TABLE tail_shop2.users (id INT PRIMARY KEY)")
        server.sql("INSERT INTO tail_shop2.users VALUES (1)", "DROP DATABASE tail_shop2")
        server.sql("UPDATE tail_shop.users SET name = NULL", "DELETE FROM tail_shop.users")
        told = tail.updates("--from", start, "--table", "tail_shop.us*")
        assert [(one["op"], one["table"], one["key"], one["before"], one["after"]) for one in told] == [
            ("insert", "tail_shop.users", [1], None, {"id": 1, "name": "Zoë"}),
            ("update", "tail_shop.users", [1], {"id": 1, "name": "Zoë"}, {"id": 1, "name": None}),
            ("delete", "tail_shop.users", [1], {"id": 1, "name": None}, None),
        ]
        tail.url += "/tail_shop"
        assert tail.updates("--from", start, "--table", "us*") == told
        assert {one["table"] for one in tail.updates("--from", start)} == {"tail_shop.users", "tail_shop.other"}
        for place in (told[0]["position"], told[0]["native_position"]):  # ours, and the server's own
            again = tail.updates("--from", place, "--table", "tail_shop.users")
            assert [one["id"] for one in again] == [one["id"] for one in told[1:]]
        dropped = tail.updates(
            "--from",
            start,
            "--filter",
            'op == "update" and changed("name") and name is null',
            "--table",
            "tail_shop.users",
        )
        assert [one["op"] for one in dropped] == ["update"]
    finally:
        server.sql("DROP DATABASE tail_shop")


def test_a_password_in_the_url_is_warned_about_and_shown_nowhere(tail: Tail) -> None:
    result = tail.invoke(tail.url.replace("wormhole@", "wormhole:a%20hole@"), "--from", "latest")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: a password on the command line")
    assert f"tailing {tail.url.replace('wormhole@', 'wormhole:***@')} from" in result.stderr


def test_a_server_that_refuses_says_what_to_run(tail: Tail, database_server: DatabaseServer) -> None:
    database_server.sql("CREATE USER 'tail_poor'@'127.0.0.1' IDENTIFIED BY 'a hole'")
    try:
        result = tail.invoke(tail.url.replace("wormhole@", "tail_poor:a%20hole@"), "--from", "latest")
        assert result.exit_code == 2
        assert "next:\n    GRANT REPLICATION SLAVE" in result.stderr
    finally:
        database_server.sql("DROP USER 'tail_poor'@'127.0.0.1'")


@pytest.mark.parametrize("reader", ["waits", "breaks"])
def test_a_stalled_network_is_no_end(
    database_server: DatabaseServer, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reader == "waits":
        monkeypatch.setattr(segment_stream, "SILENCE_S", 0.5)
    else:
        monkeypatch.setattr(dump, "_SILENT_BEATS", 0.3)
    server = database_server
    server.sql("CREATE DATABASE tail_stall", "CREATE TABLE tail_stall.t (id INT PRIMARY KEY, pad VARCHAR(250))")
    said: list[str] = []
    seen: list[Any] = []
    try:
        with FaultProxy(server.host, server.port) as proxy:
            url = f"{server.flavour}://{server.user}@{proxy.host}:{proxy.port}"
            with open_log(url, Login(server.password_file)) as source:
                start = source.latest()
                rows = ",".join(f"({n}, REPEAT('x', 250))" for n in range(5000))
                server.sql(
                    f"INSERT INTO tail_stall.t VALUES {rows}", "FLUSH BINARY LOGS"
                )  # the end is in an empty file

                def waiting(sentence: str) -> None:
                    said.append(sentence)
                    proxy.pass_through()

                plain = source.open

                def stalling(marker: Datamarker) -> LogReader:
                    if not said:
                        proxy.after(100_000, proxy.stall)  # amid the rows: opening takes a few kilobytes
                    return plain(marker)

                monkeypatch.setattr(source, "open", stalling)
                events = TailEvents(
                    lambda update: seen.append(update.key), lambda gap, begin: pytest.fail(gap.message), waiting=waiting
                )
                shown = tail_source(source, TailOptions(Filter.parse(None), str(start.order), follow=False), events)
        assert (shown, seen) == (5000, [(n,) for n in range(5000)])
        assert ("and the log goes on to 1/" if reader == "waits" else "it is opened again at 1/") in said[0]
    finally:
        server.sql("DROP DATABASE tail_stall")
