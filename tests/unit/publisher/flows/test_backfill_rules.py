"""Which tables may have rows in a shard."""

from __future__ import annotations

import pytest

from publisher.flows.backfill_rules import tables_of_shard
from wormhole.model.sharding import Sharding, shard_of_hash, shard_of_table

HASH = Sharding("hash", 4)


@pytest.mark.parametrize(
    ("sharding", "shard", "tables"),
    [
        (Sharding("log"), "db1", ()),
        (HASH, shard_of_hash("db1", b"7", 4), ()),
        (HASH, shard_of_table("db1", "shop.log"), ("shop.log",)),
        (HASH, shard_of_table("db1", "shop.l*g ö"), ("shop.l[*]g ö",)),
        (HASH, "db1.1of8", ("1of8",)),
        (Sharding("table"), shard_of_table("db1", "shop.log"), ("shop.log",)),
        (Sharding("database"), shard_of_table("db1", "shop"), ("shop.*",)),
    ],
)
def test_the_shard_of_a_table_without_a_key_holds_that_table_alone(
    sharding: Sharding, shard: str, tables: tuple[str, ...]
) -> None:
    assert tables_of_shard(shard, "db1", sharding) == tables
