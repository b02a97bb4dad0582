"""The keys that a relay notes of a lost range are those of every row that is another one behind it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from publisher.relay.lost_keys import LostKeysBuilder, lost_file, lost_file_to_bytes
from tests.support.present import present
from tests.support.random_tables import RandomTables
from tests.support.seed import examples
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.wire.rows import encode_key


@examples(100)
@given(
    seed=st.integers(0, 1 << 32),
    sharding=st.sampled_from([Sharding("log"), Sharding("hash", 2), Sharding("table")]),
    size=st.integers(1, 4_000),
)
def test_every_row_that_is_another_one_is_known(seed: int, sharding: Sharding, size: int) -> None:
    chance = random.Random(seed)
    world = RandomTables(chance, sharding, lambda key: key, replayable=False)
    for _ in range(chance.randrange(1, 12)):
        chance.choice([world.commit, world.commit, world.commit, world.commit_partial, world.alter])()
    begin, end = sorted(chance.sample(world.markers, 2), key=lambda marker: marker.order)
    builder = LostKeysBuilder()
    reader = world.source.open(begin)
    segment: Segment | None = None
    while segment is None or segment.marker is None or segment.end < end.order:
        segment = present(reader.read(size, 0.0))
        builder.add(segment)
    built = present(builder.built(begin.order, segment.end))
    found = lost_file(lost_file_to_bytes(built, b"me"), b"me")
    assert found == built
    for shard in world.shards:
        before, after = world.rows(shard, begin), world.rows(shard, segment.marker)
        lost = built.of(shard).tables
        for table, key in before.keys() | after.keys():
            # An ALTER changes rows, and the log has none of them. Each change has a number of its own in "v".
            was, now = (rows.get((table, key), {}).get("v") for rows in (before, after))
            if was != now and table not in world.rekeyed:
                assert table in lost
                assert lost[table].whole or encode_key(key) in lost[table].keys
