"""What a filter does to a log, which columns it lacks, and how that is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from datastores.memory.source import MemorySource
from tests.support.command_line import run
from wormhole.config import parse
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter, Projection
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import ConfigError, DecodeError, FilterError, UnknownApplication, UsageError
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.model.values import Op
from wormhole.ports.datastore import Login
from wormholectl.filters import effect as explain_module
from wormholectl.filters import lacking_columns
from wormholectl.filters.effect import Chosen, effect, formats_of, from_config, from_options
from wormholectl.filters.lacking_columns import in_config, no_table, of_log, unmatched, warnings
from wormholectl.filters.show import effect_object, show_effect
from wormholectl.logs import opened

# --- effect ---


PAID, OPEN = b'{"status": "paid"}', b'{"status": "open"}'
CONFIG = """version = 1
[datasets.shop]
value_format = "json"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[applications.paid]
dataset = "shop"
start = "latest"
tables = ["users"]
where = 'status == "paid"'
"""


def log_of(*transactions: list[tuple[str, bytes, bytes | None]]) -> MemorySource:
    source = MemorySource()
    source.start()
    for changes in transactions:
        source.commit(
            [
                (Op.DELETE, table, key, None) if value is None else (Op.UPSERT, table, key, {"value": value})
                for table, key, value in changes
            ]
        )
    return source


WANTED = Filter.parse('status == "paid"', ["users"], formats_of(["json"]))
LOG = log_of(
    [("users", b"a", PAID), ("users", b"b", OPEN)],
    [("users", b"c", None), ("orders", b"d", PAID)],
    [("users", b"e", b"{")],
)


def test_what_a_filter_does_to_a_log() -> None:
    found = effect(WANTED, LOG, 100)
    orders, users = found.tables
    assert (found.updates, orders.table, users.table) == (5, "orders", "users")
    assert (orders.updates, orders.kept, orders.sent_bytes) == (1, 0, 0)
    assert (users.updates, users.kept, users.key_only, users.bad_values) == (4, 4, 1, 1)
    whole = [len(PAID), len(OPEN), 0, 1]
    assert users.bytes - users.sent_bytes == whole[1] + 4  # the value, and the tags and lengths around it
    assert orders.bytes > len(PAID)


def test_only_the_last_updates_count() -> None:
    assert [(one.table, one.updates) for one in effect(WANTED, LOG, 2).tables] == [("orders", 1), ("users", 1)]
    assert [(one.table, one.updates) for one in effect(WANTED, LOG, 4).tables] == [("orders", 1), ("users", 3)]


def test_large_updates_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "_MOST_BYTES", 1)
    source = log_of([("users", b"a", PAID)])
    assert effect(WANTED, source, 100).updates == 1  # the newest piece is always looked at


def test_an_empty_log() -> None:
    found = effect(WANTED, log_of(), 10)
    assert (found.updates, found.begin, found.tables) == (0, None, [])


def test_formats_of_options() -> None:
    formats = formats_of(["json", "raw=bytes", "users=msgpack"])
    names = [None if found is None else found.name for found in map(formats.of, ("any", "raw", "users"))]
    assert names == ["json", None, "msgpack"]
    for wrong in ("yaml", "protobuf:x", "protobuf::", "users="):
        with pytest.raises(UsageError, match="--value-format"):
            formats_of([wrong])
    with pytest.raises(ConfigError, match="cannot be read"):
        formats_of(["protobuf:/none/there:x.Y"])


def test_what_the_source_cannot_decide_is_refused() -> None:
    with pytest.raises(FilterError, match="declares no value format"):
        from_options("status == 1", (), "rocksdb:///store", ())
    assert from_options("status == 1", (), "rocksdb:///store", ["json"]).source == "rocksdb:///store"
    assert from_options("status == 1", (), "", ()).source == ""  # nothing to compare it with


def test_the_mask_of_an_application_is_examined_without_its_key(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(
        'version = 1\n[coordinator]\nzookeeper = "zk1:2181"\n[datasets.shop.copies.main.logs.db1]\n'
        'source = "mysql://wormhole@db1:3306"\n[applications.cache]\ndataset = "shop"\nstart = "latest"\n'
        'columns = ["email"]\nmask = { email = "hash" }\n'
    )
    chosen = from_config(path, "cache", None).filter
    source = MemorySource()
    source.start()
    source.commit([(Op.UPSERT, "shop.users", b"a", {"email": "a" * 1000, "notes": "n" * 1000})])
    (table,) = effect(chosen, source, 10).tables
    assert 64 < table.sent_bytes < 100 < 2000 < table.bytes


def test_an_application_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(CONFIG)
    chosen = from_config(path, "paid", None)
    assert chosen == Chosen(WANTED, "rocksdb:///store", tables=("users",)) == from_config(path, "paid", "shop/main/db1")
    assert chosen.filter.hash == WANTED.hash
    with pytest.raises(UnknownApplication):
        from_config(path, "unpaid", None)
    with pytest.raises(UsageError, match="receives no log shop/main/db9"):
        from_config(path, "paid", "shop/main/db9")
    path.write_text(CONFIG + '[datasets.shop.copies.main.logs.db2]\nsource = "rocksdb:///other"\n')
    with pytest.raises(UsageError, match="receives several logs"):
        from_config(path, "paid", None)
    assert from_config(path, "paid", "shop/main/db2").source == "rocksdb:///other"


def test_an_application_receives_the_logs_of_the_copies_that_serve_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    logs = "".join(
        f'[datasets.shop.copies.{copy}.logs.db1]\nsource = "{copy}"\nkind = "mysql"\n'
        for copy in ("main", "west", "east")
    )
    head = 'version = 1\n[coordinator]\nzookeeper = "zk1:2181"\n[datasets.shop.failover]\ncopies = ["main", "west"]\n'
    applications = "".join(
        f'[applications.{name}]\ndataset = "shop"\nstart = "latest"\n{copy}\n'
        for name, copy in (("any", ""), ("of-east", 'copy = "east"'))
    )
    path.write_text(head + logs + applications)
    assert from_config(path, "any", "shop/west/db1").source == "west"
    with pytest.raises(UsageError, match="receives no log shop/east/db1"):
        from_config(path, "any", "shop/east/db1")
    assert from_config(path, "of-east", None).source == "east"


# --- lacking columns ---


def table(name: str, *columns: str) -> TableDefinition:
    found = tuple(ColumnDefinition(column, Content.TEXT, nullable=True) for column in columns)
    return TableDefinition(name, ("id",), found)


USERS, SHOP_LOG = table("shop.users", "id", "email"), table("shop.log", "id")


_CHOOSE = "choose the tables that have it, with `tables` or `table ==`"


@pytest.mark.parametrize(
    ("where", "lack", "fate", "step"),
    [
        ('email == "x"', "shop.log has no column email", "all its updates are delivered", _CHOOSE),
        ('email == "x" and op == "delete"', "shop.log has no column email", "the rest of the filter decides", _CHOOSE),
        (
            'emial == "x"',
            "shop.users, shop.log have no column emial",
            "all their updates are delivered",
            "did you mean email for emial?",
        ),
    ],
)
def test_which_tables_lack_what_and_what_becomes_of_their_updates(where: str, lack: str, fate: str, step: str) -> None:
    [line] = warnings(Filter.parse(where), [USERS, SHOP_LOG])
    assert line == f"{lack}: that test is unknown there, which passes, so {fate}. Next: {step}"


def test_tables_that_the_filter_does_not_want_may_lack_its_columns() -> None:
    assert warnings(Filter.parse('table == "shop.users" and email == "x"'), [USERS, SHOP_LOG]) == []
    assert warnings(Filter.parse("id == 1"), [USERS, SHOP_LOG]) == []


def test_many_tables_are_counted() -> None:
    [line] = warnings(Filter.parse("email is null"), [USERS, *(table(f"shop.t{i}", "id") for i in range(9))])
    assert line.startswith("shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 4 more have no column email")


def test_columns_and_masks_that_name_no_column() -> None:
    projection = Projection.parse(["emial", "ID", "-city"], {"shop.log.email": "null", "email": "null"})
    assert list(unmatched(projection, [USERS, SHOP_LOG])) == [
        ("columns", "emial names no column of 2 tables. Next: did you mean email?"),
        ("columns", "city names no column of 2 tables. Next: remove it from `columns`, or correct it"),
        ("mask", "shop.log.email names no column of 2 tables, so it hides nothing. Next: did you mean email?"),
    ]


def test_a_mask_on_a_key_is_refused_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    datastore = SimpleNamespace(capabilities=capabilities_of("mysql"), describe=lambda *_: [USERS, SHOP_LOG])
    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: datastore)
    monkeypatch.setattr(lacking_columns, "installed", lambda found: nullcontext())
    config = (
        'version = 1\ncoordinator.static = true\n[datasets.shop.copies.main.logs.db1]\nsource = "mysql://u@localhost/"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\n'
    )
    with pytest.raises(
        ConfigError, match=r"applications\.cache\.mask: id names id, a column of the key of shop\.users"
    ):
        in_config(parse(config + 'mask = { id = "null" }', "x.toml"))
    assert in_config(parse(config + 'mask = { emial = "null" }\ncolumns = ["email"]', "x.toml")) == [
        "applications.cache.mask: emial names no column of 2 tables, so it hides nothing. Next: did you mean email?"
    ]


def test_a_server_that_does_not_answer_is_a_warning_of_the_configuration(tmp_path: Path) -> None:
    text = (
        "version = 1\ncoordinator.static = true\n[datasets.shop.copies.main.logs.db1]\n"
        f'source = "mysql://u@localhost/?socket={tmp_path}/none"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\nwhere = "{}"\n'
    )
    [line] = in_config(parse(text.replace("{}", "email is null"), "x.toml"))
    assert line.startswith("applications.cache.where: its columns were not compared with the tables: ")
    assert in_config(parse(text.replace("{}", "op == 'delete'"), "x.toml")) == [], "nothing to ask for"
    [line] = in_config(parse(text.replace("{}", "") + 'mask = { email = "null" }', "x.toml"))
    assert line.startswith("applications.cache.mask: its columns were not compared with the tables: ")


def test_a_store_of_bytes_has_no_columns() -> None:
    assert of_log(Filter.parse("email is null"), "rocksdb:///none", Login()) == []
    assert no_table(Filter.parse(None, ["shop.*"]), "rocksdb:///none", Login()) == []


def test_of_many_tables_those_that_the_filter_wants_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Server:
        capabilities = Capabilities(title="a server")
        requirement = "nothing"

        def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> list[TableDefinition]:
            names = [f"{database}.t{i}" for database in ("other", "shop") for i in range(300)]
            asked.extend(name for name in names if wanted(name))
            return [table(name, "id") for name in asked]

    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: Server())
    [line] = of_log(Filter.parse("email is null", ["shop.*"]), "server://h", Login())
    assert asked == [f"shop.t{i}" for i in range(200)]
    assert "and 195 more have no column email" in line


@pytest.mark.parametrize(
    ("where", "tables", "warned"),
    [
        (None, [], False),
        (None, ["shop.*"], False),
        (None, ["nosuch.*"], True),
        ('table == "shop.orders"', [], False),
        ('table == "shop.oders"', [], True),
        ("email is null", [], False),
    ],
)
def test_a_filter_on_tables_that_are_not_there(
    where: str | None, tables: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        capabilities = Capabilities(title="a server")

        def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> list[TableDefinition]:
            return [table(name, "id") for name in ("shop.users", "shop.orders") if wanted(name)]

    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: Server())
    wanted = Filter.parse(where, tables)
    says = (
        f"no table that this account may see fits {wanted.text}. Next: check the names; a table that is created later"
    )
    assert no_table(wanted, "server://h", Login()) == ([f"{says} is shown"] if warned else [])


def test_the_tables_of_the_copies_that_serve_an_application_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def describe(url: str, *_: object) -> list[TableDefinition]:
        asked.append(url)
        return [USERS, SHOP_LOG]

    datastore = SimpleNamespace(capabilities=capabilities_of("mysql"), describe=describe)
    monkeypatch.setattr(lacking_columns, "datastore_at", lambda url: datastore)
    monkeypatch.setattr(lacking_columns, "installed", lambda found: nullcontext())
    logs = "".join(
        f'[datasets.shop.copies.{copy}.logs.db1]\nsource = "mysql://u@{copy}"\n' for copy in ("main", "west", "east")
    )
    text = (
        'version = 1\ncoordinator.zookeeper = "zk1:2181"\n[datasets.shop.failover]\ncopies = ["main", "west"]\n'
        f'{logs}[applications.cache]\ndataset = "shop"\nstart = "latest"\ncolumns = ["email"]\n'
    )
    in_config(parse(text, "x.toml"))
    in_config(parse(text + 'copy = "east"', "x.toml"))
    assert asked == ["mysql://u@main", "mysql://u@west", "mysql://u@east"]


# --- commands ---


def test_a_filter_is_explained_without_a_log() -> None:
    code, out, _ = run("filters", "explain", 'not status != "paid"', "--json")
    found = json.loads(out)
    assert (code, found["normal"], found["log"]) == (0, 'status == b"paid"', None)
    code, _, err = run("filters", "explain", "a == 1", "-c", "shop.toml", "--value-format", "json")
    assert (code, "with --config" in err) == (2, True)
    code, _, err = run("filters", "explain", "status == 1", "--source", "rocksdb:///none")
    assert code == 2
    assert "column 1: the field status needs values" in err


def test_a_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "open_log", lambda url, login: nullcontext(LOG))
    code, out, _ = run("filters", "explain", "op == 'delete'", "--source", "rocksdb:///store", "--last", "3", "--json")
    found = json.loads(out)
    assert (code, found["schema"], found["log"]["updates"]) == (0, 1, 3)


# --- show ---


def test_an_effect_for_a_person_and_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    found = effect(WANTED, LOG, 10)
    show_effect(WANTED, found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'read as  status == b"paid" and table matches "users"'
    assert [line.split("  needs ")[1] for line in lines[2:4]] == ["the value", "the table"]
    assert "marked left" in lines[4]
    assert lines[5].startswith("the last 5 updates, 1/1/0 to 1/1/")
    assert lines[6].split()[:2] == ["TABLE", "UPDATES"]
    assert [line.split()[:5] for line in lines[7:]] == [
        ["orders", "1", "0", "0", "1"],
        ["users", "4", "4", "1", "0"],
        ["all", "5", "4", "1", "1"],
    ]
    told = effect_object(WANTED, found)
    assert (told["hash"], told["normal"]) == (WANTED.hash, lines[0].removeprefix("read as  "))
    assert told["tests"][0] == {"test": 'status == b"paid"', "needs": "the value"}
    assert told["log"]["updates"] == 5
    assert [table["key_only"] for table in told["log"]["tables"]] == [0, 1]
    assert effect_object(WANTED, None)["log"] is None


def test_columns_and_masks_are_shown_with_what_they_name_and_save(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Filter.parse(None, ["users"], projection=Projection.parse(["val*", "nane"], {"value": "null"}))
    found = effect(wanted, LOG, 10)
    users = found.tables[1]
    assert (users.kept, users.key_only, users.sent_bytes < users.bytes) == (4, 0, True)
    show_effect(wanted, found)
    out = capsys.readouterr().out
    assert out.splitlines()[3:5] == ["columns  val*, nane, and keys", "mask     value = null"]
    told = effect_object(wanted, found)
    assert (told["columns"], told["mask"]) == (["val*", "nane"], {"value": "null"})
    with pytest.raises(DecodeError, match="mask: key names key, a column of the key"):
        effect(Filter.parse(None, projection=Projection.parse([], {"key": "null"})), LOG, 10)


def test_a_log_without_updates_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Filter.parse(None)
    show_effect(wanted, effect(wanted, log_of(), 10))
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("read as  true", "the log holds no updates")
