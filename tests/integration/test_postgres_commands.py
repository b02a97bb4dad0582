"""``init``, ``objects``, ``doctor``, ``tail`` and ``models`` for a PostgreSQL database, as its users meet them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from datastores.postgres.source import PostgresSource
from tests.support.command_line import run
from tests.support.eventually import until
from tests.support.postgres_server import PostgresServer
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

_SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = '{}' ORDER BY 1"


class Database:
    """A database of the shared server. ``admin`` and ``url``: for its superuser, and for the publisher's account."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)
        self.admin = self.url.replace(f"{server.user}@", "postgres@")
        self.password = ("--password-file", str(server.password_file))

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        return self.server.sql(*statements, database=self.name)

    def slots(self) -> list[str]:
        return [str(name) for (name,) in self.sql(_SLOTS.format(self.name))]

    def publications(self) -> list[str]:
        return [str(name) for (name,) in self.sql("SELECT pubname FROM pg_publication")]


@pytest.fixture
def database(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Database:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = Database(postgres_server, postgres_database)
    found.sql("CREATE TABLE users (id int PRIMARY KEY, name text)")
    return found


def test_init_makes_publication_and_slots_on_yes_and_a_command_drops_them(database: Database) -> None:
    name = f"wormhole_{database.name}"
    code, out, err = run("init", database.admin)
    assert (code, err) == (1, ""), "publication and slots are missing"
    assert f'CREATE PUBLICATION "{name}" FOR TABLE "public"."users" WITH' in out
    assert f"pg_create_logical_replication_slot('{name}_held', 'pgoutput'" in out
    assert "Nothing was made" in out
    assert not database.slots() + database.publications()
    code, out, err = run("init", database.admin, "--force", "--yes")
    assert (code, err) == (0, "")
    assert "1 table in public: public.users" in out
    assert "PROBLEM" not in out
    assert database.slots() == [f"{name}_held", f"{name}_lead"]
    assert database.publications() == [name]
    logs = tomllib.loads(Path(f"{database.name}.toml").read_text())["datasets"][database.name]["copies"]["main"]["logs"]
    assert logs[database.name]["source"] == database.admin
    assert run("config", "check", f"{database.name}.toml")[0] == 0
    assert run("objects", "create", database.admin)[1] == f"nothing is missing for the log {database.name}\n"
    # With the account of a publisher everything is in order, too.
    assert "slots: the log is kept from" in run("doctor", database.url, *database.password)[1]
    code, out, err = run("objects", "drop", database.admin)
    assert (code, "--yes" in err) == (2, True)
    assert "oldest datamarker" in err
    assert len(database.slots()) == 2
    code, out, _ = run("objects", "drop", database.admin, "--yes")
    assert (code, out.splitlines()[-1]) == (0, "dropped")
    assert not database.slots() + database.publications()
    assert run("objects", "drop", database.admin)[1] == f"nothing is there for the log {database.name}\n"


def test_an_account_without_the_right_is_given_what_a_superuser_has_to_run(database: Database) -> None:
    code, out, err = run("objects", "create", database.url, *database.password, "--yes")
    assert code == 3
    assert "permission denied for database" in err
    assert "run these as a superuser" in err
    assert "CREATE PUBLICATION" in err
    assert f"'wormhole_{database.name}_lead'" in err
    assert not database.slots()
    code, out, _ = run("init", database.url, *database.password, "--yes")
    assert code == 1
    assert "not all was made" in out


def test_tables_without_a_key_are_not_published(database: Database) -> None:
    """To publish them would have the server refuse every UPDATE and DELETE of the application."""
    database.sql("CREATE TABLE events (v int)", "INSERT INTO events VALUES (1)")
    code, out, _ = run("objects", "create", database.admin, "--log", "Main-DB", "--yes")
    assert (code, 'FOR TABLE "public"."users" WITH' in out) == (0, True)
    assert database.publications() == ["wormhole_main_db"]
    database.sql("UPDATE events SET v = 2")
    code, out, _ = run("doctor", database.admin)
    assert "leaves out public.events" in out
    assert "first a primary key, or REPLICA IDENTITY FULL, for public.events" in out
    assert "ADD TABLE" not in out


def test_of_two_logs_of_one_database_none_is_taken_for_the_other(database: Database, tmp_path: Path) -> None:
    """Each has a publication of its own; of one table it is not in the other one's."""
    database.sql("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION wormhole_two FOR TABLE orders")
    for log in ("one", "two"):
        code, out, _ = run("objects", "create", database.admin, "--log", log, "--yes")
        assert (code, f"for the log {log}:" in out) == (0, True)
    assert "stay: slot=wormhole_one" in out
    assert len(database.slots()) == 4
    log = f'[datasets.shop.copies.main.logs.{{}}]\nsource = "{database.url}"\n'
    head = "version = 1\n[coordinator]\nstatic = true\n"
    (tmp_path / "both.toml").write_text(head + log.format("one") + log.format("two"))
    (tmp_path / "two.toml").write_text(head + log.format("two"))
    assert run("config", "check", "both.toml")[0] == 0
    doctor = ("doctor", database.url, *database.password)
    for named in (("-c", "two.toml"), ("-c", "both.toml", "--log", "two"), ("--log", "two")):
        found = json.loads(run(*doctor, *named, "--json")[1])
        assert found["facts"]["slots"] == "wormhole_two_held, wormhole_two_lead"
        assert found["facts"]["publication"] == "wormhole_two"
        assert "leaves out public.users" in str(found["findings"])
    code, out, err = run(*doctor, "-c", "both.toml")
    assert (code, out, "shop/main/one, shop/main/two" in err) == (2, "", True)
    tail = ("tail", database.url, *database.password, "--from", "earliest", "--no-follow", "--json")
    for command in (doctor, tail, ("objects", "drop", database.admin, "--yes")):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert "wormhole_one" in err
        assert "--log NAME" in err
    database.sql("INSERT INTO users VALUES (7, 'Ada')", "INSERT INTO orders VALUES (8)")
    for log_name, tables in (("one", ["public.users", "public.orders"]), ("two", ["public.orders"])):
        code, out, err = run(*tail, "--log", log_name)
        assert (code, [json.loads(line)["table"] for line in out.splitlines()]) == (0, tables)
    assert run("init", database.admin, "--log", "one")[0] == 0
    assert run("objects", "drop", database.admin, "-c", "both.toml", "--log", "two", "--yes")[0] == 0
    assert database.slots() == ["wormhole_one_held", "wormhole_one_lead"]
    assert database.publications() == ["wormhole_one"]


def test_two_configurations_of_one_database_do_not_share_a_log(database: Database, tmp_path: Path) -> None:
    """`init` calls the log as the database: the second one would move the slots of the first."""
    assert run("init", database.admin, "--dir", "first", "--yes")[0] == 0
    options = SourceOptions(
        database.name, tmp_path / "state", Sharding("log"), 1 << 20, 0, Login(database.server.password_file)
    )
    source = PostgresSource(database.url, options)
    source.start()
    try:
        source._move_slots()
        code, out, err = run("init", database.admin, "--dir", "second", "--yes")
        assert (code, out, Path("second").exists()) == (2, "", False)
        assert f"the log {database.name} of another configuration is served already: a publisher moves the slots" in err
        assert run("init", database.admin, "--dir", "first", "--force")[0] == 0
        code, out, err = run("objects", "drop", database.admin, "--yes")
        assert (code, "nothing was dropped: a publisher moves the slots" in err) == (2, True)
        assert run("init", database.admin, "--dir", "second", "--yes", "--log", "other")[0] == 0
    finally:
        source.stop()
    assert len(database.slots()) == 4
    assert sorted(database.publications()) == sorted([f"wormhole_{database.name}", "wormhole_other"])


def test_dropping_is_refused_while_a_publisher_reads(database: Database) -> None:
    run("objects", "create", database.admin, "--yes")
    with subprocess.Popen(_tail(database), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        try:
            # A tail is a reader like a publisher's: a copy of the slot, whose name it begins with.
            until(lambda: len(database.slots()) == 3, "the tail does not begin")
            code, _, err = run("objects", "drop", database.admin, "--yes")
            assert (code, "nothing was dropped: a publisher or a tail reads the log" in err) == (2, True)
            assert len(database.slots()) == 3
        finally:
            tail.kill()
    until(lambda: len(database.slots()) == 2, "the killed tail left a slot")


def _tail(database: Database) -> list[str]:
    return [sys.executable, "-m", "wormholectl", "tail", database.url, *database.password, "--json"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_tail_leaves_nothing_behind(database: Database, end: signal.Signals) -> None:
    code, _, err = run("tail", database.url, *database.password, "--no-follow")
    assert (code, "CREATE PUBLICATION" in err, database.slots()) == (3, True, [])
    database.sql("CREATE PUBLICATION mine FOR ALL TABLES")
    with subprocess.Popen(_tail(database), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        until(database.slots, "the tail does not begin")
        until(lambda: _reads(database), "the tail does not read")
        database.sql("INSERT INTO users VALUES (7, 'Ada')")
        told = json.loads(tail.stdout.readline())
        assert (told["op"], told["table"], told["key"]) == ("insert", "public.users", [7])
        tail.send_signal(end)
    until(lambda: not database.slots(), "a slot is left")
    assert database.publications() == ["mine"]


def _reads(database: Database) -> bool:
    return bool(database.sql("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))


def test_models_have_the_types_of_the_columns_and_fit_what_arrives(database: Database, tmp_path: Path) -> None:
    database.sql(
        "CREATE TYPE plan AS ENUM ('free', 'paid')",
        "CREATE DOMAIN amount AS numeric(9, 2) NOT NULL",
        "CREATE TABLE orders (id bigint, tenant int, plan plan, total amount, paid bool NOT NULL, born date, at "
        "timestamptz, local timestamp, data jsonb, raw bytea, tags text[], who uuid, PRIMARY KEY (tenant, id))",
        "CREATE PUBLICATION mine FOR ALL TABLES",
    )
    code, _out, err = run("models", database.url, *database.password, "--table", "public.orders", "-o", "models.py")
    assert (code, err) == (0, "")
    text = Path("models.py").read_text()
    fields = [line.strip() for line in text.splitlines() if line.startswith("    ") and ": " in line]
    assert fields[1:] == [
        "id: int",
        "tenant: int",
        'plan: Literal["free", "paid"] | None',
        "total: Decimal",
        "paid: bool",
        "born: dt.date | None",
        "at: Annotated[dt.datetime, InUtc] | None",
        "local: dt.datetime | None",
        "data: Json[Any] | None",
        "raw: bytes | None",
        "tags: str | None",
        "who: str | None",
    ]
    assert '"""Table public.orders. Key: id, tenant."""' in text
    assert run("models", "--check", "models.py", *database.password)[0] == 0
    database.sql("ALTER TABLE orders ALTER born TYPE text")
    assert run("models", "--check", "models.py", *database.password)[0] == 1
