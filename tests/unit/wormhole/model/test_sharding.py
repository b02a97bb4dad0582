"""Names of shards, which other tools must be able to compute."""

from __future__ import annotations

import zlib

import pytest

from wormhole.model.sharding import shard_of_hash, shard_of_table


@pytest.mark.parametrize(
    ("table", "shard"),
    [
        ("users", "log.users"),
        ("shop.users", "log.shop%2Eusers"),
        ("a/b", "log.a%2Fb"),
        ("50%", "log.50%25"),
        ("é", "log.%C3%A9"),
        ("A-z_0", "log.A-z_0"),
        ("..", "log.%2E%2E"),
    ],
)
def test_a_table_gives_a_name_that_fits_a_path(table: str, shard: str) -> None:
    assert shard_of_table("log", table) == shard


def test_different_tables_give_different_shards() -> None:
    tables = ["a.b", "a%2Eb", "a/b", "a b", "a_b"]
    assert len({shard_of_table("log", table) for table in tables}) == len(tables)


def test_the_hash_is_the_documented_one() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the check value of RFC 1952's CRC-32
    assert shard_of_hash("log", b"123456789", 16) == f"log.{0xCBF43926 % 16}of16"
    assert shard_of_hash("log", b"", 3) == "log.0of3"
