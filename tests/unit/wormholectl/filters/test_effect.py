from __future__ import annotations

from pathlib import Path

import pytest

from datastores.memory.source import MemorySource
from wormhole.filters import Filter
from wormhole.model.errors import ConfigError, FilterError, UnknownApplication, UsageError
from wormhole.model.values import Op
from wormholectl.filters import effect as explain_module
from wormholectl.filters.effect import Chosen, effect, formats_of, from_config, from_options

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
