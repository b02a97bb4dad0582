from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.value_formats import ORDER_MESSAGE, write_descriptor_set
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter, Projection
from wormhole.filters.capabilities import needs_of
from wormhole.filters.parser import parse
from wormhole.formats import FormatSpec, open_formats
from wormhole.model.errors import FilterError

JSON = FormatSpec("json")
ROCKSDB = capabilities_of("rocksdb")
SERVER = capabilities_of("mysql")


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (
            "changed(status)",
            r"changed\(status\) needs the row before the change, which the log of RocksDB does not hold",
        ),
        ("changed(a.b) or true and key == 'a'", r"changed\(a\.b\) needs the row before"),
        ('status == "paid" and entered', "entered needs the row before the change"),
        ('status == "paid" or left', "left says what the rest of the filter means for an update"),
        ("not (left and status == 1)", "left says what the rest"),
        ("key is null", "a key of RocksDB is never null"),
        ("key[0] is absent", "a key of RocksDB is never absent"),
    ],
)
def test_what_a_store_with_a_format_cannot_decide(where: str, problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        Filter.parse(where, formats=open_formats(JSON, {})).check(ROCKSDB)


@pytest.mark.parametrize(
    "where", ['status == "paid" and not left', "a.b is null", "amount > 10 and left", "x in (1, 2)"]
)
def test_what_it_can(where: str) -> None:
    Filter.parse(where, formats=open_formats(JSON, {})).check(ROCKSDB)


@pytest.mark.parametrize("where", ["a is null", "a == 1", "a startswith 'x'", "a in (1)", "left"])
def test_without_a_format_the_error_has_what_to_declare(where: str) -> None:
    for formats in (None, open_formats(FormatSpec("bytes"), {})):
        with pytest.raises(FilterError, match=r'value_format = "json"'):
            Filter.parse(where, formats=formats).check(ROCKSDB)


def test_a_table_of_a_server_has_its_database() -> None:
    for parsed in (Filter.parse(None, ["shop.*", "users"]), Filter.parse('table == "users"')):
        with pytest.raises(FilterError, match=r'(?s)"users": .*"database.*\[filter-invalid\]') as caught:
            parsed.check(SERVER)
        assert '"*.users"' in str(caught.value)
        parsed.check(ROCKSDB)
    Filter.parse('table in ("shop.users", "a.b")', ["*users", "shop?users", "[s]hop*"]).check(SERVER)


def test_a_table_of_postgres_has_its_schema() -> None:
    with pytest.raises(FilterError, match=r'are "schema\.table"') as caught:
        Filter.parse('table == "users"').check(capabilities_of("postgres"))
    assert '"public.users"' in str(caught.value)
    with pytest.raises(FilterError, match=r'are "schema\.table".*write "public\.users\.name"'):
        Projection(("users.name",)).check(capabilities_of("postgres"))


def test_a_table_of_the_log_that_no_database_has() -> None:
    log = replace(SERVER, more_tables=("@message",))
    for parsed in (Filter.parse(None, ["shop.*", "@message"]), Filter.parse('table == "@message"')):
        parsed.check(log)
        with pytest.raises(FilterError, match="no table is called"):
            parsed.check(SERVER)


def test_every_source_may_have_existing_rows() -> None:
    """They are in no log, so the operations of a log do not have them."""
    Filter.parse('op == "read"').check(ROCKSDB)
    Filter.parse('op in ("read", "upsert")').check(ROCKSDB)
    with pytest.raises(FilterError, match='has no operation "insert"') as caught:
        Filter.parse('op in ("read", "insert")').check(ROCKSDB)
    assert '"delete_range", "read"' in str(caught.value)


def test_a_field_that_no_message_has(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    write_descriptor_set(path)
    protobuf = FormatSpec("protobuf", path, ORDER_MESSAGE)
    with pytest.raises(FilterError, match=r"(?s)shop\.v1\.Order .* amount; .* id, status.*\[filter-invalid\]"):
        Filter.parse("amount > 1", formats=open_formats(protobuf, {})).check(ROCKSDB)
    # Another table may have it.
    Filter.parse("amount > 1", formats=open_formats(protobuf, {"users": JSON})).check(ROCKSDB)
    Filter.parse('customer.name == "Ada"', formats=open_formats(protobuf, {})).check(ROCKSDB)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("changed(a)", "the values before and after"),
        ("entered", "the row before the change"),
        ("left", "the rest of the filter"),
        ('op == "delete"', "the operation"),
        ("a is null", "the value"),
        ("a in (1, 2)", "the value"),
        ("key == 'a'", "the key"),
        ("key startswith 'a'", "the key"),
        ("hash(key) % 2 == 1", "the key"),
        ("table == 'a'", "the table"),
        ("table matches 'a*'", "the table"),
    ],
)
def test_what_tests_need(text: str, needs: str) -> None:
    assert needs_of(parse(text)) == needs  # type: ignore[arg-type]
