"""A verification beside random changes and failures finds exactly what was spoilt in a copy, and repairs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from subscriber_sdk import AckLater, Key, KeyRange, Op, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, read, update
from tests.support.seed import examples

TABLE = "shop.users"
KEYS = range(12)
pytestmark = pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")

_PART = 3  # keys in a chunk
_changes = st.tuples(
    st.sampled_from(["put", "delete", "move", "truncate"]), st.sampled_from(KEYS), st.sampled_from(KEYS)
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(_changes, min_size=1, max_size=4)),
        st.tuples(st.just("chunk"), st.none()),
        st.tuples(st.just("wait"), st.booleans()),
        st.tuples(st.just("fail"), st.sampled_from(KEYS)),
        st.tuples(st.just("spoil"), st.tuples(st.sampled_from(["flip", "drop", "add"]), st.sampled_from(KEYS))),
    ),
    max_size=14,
)
_spoilt = st.lists(st.tuples(st.sampled_from(["flip", "drop", "add"]), st.sampled_from(KEYS)), max_size=5)


class Copy(Subscriber):
    """Undoes nothing when updates come again."""

    def __init__(self) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self.waits = False
        self.fails: set[int] = set()

    async def on_update(self, update: Update) -> None:
        if update.op is Op.TRUNCATE:
            self.rows.clear()
            return
        if update.key[0] in self.fails:
            self.fails.clear()
            raise ValueError("fails once")
        if update.old_key is not None:
            self.rows.pop(update.old_key, None)
        if update.after is None:
            self.rows.pop(update.key, None)
        else:
            self.rows[update.key] = dict(update.after)

    async def on_datamarker(self, marker: Any) -> AckLater | None:
        return AckLater(3600) if self.waits else None

    async def on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:
        return {key: self.rows[key] for key in keys if key in self.rows}

    def on_verify_keys(self, table: str, shard: str) -> Iterable[Key]:
        return list(self.rows)

    async def on_range(self, keys: KeyRange) -> None:
        for key in keys.keys:
            self.rows.pop(key, None)


class World:
    """The source, its copy, and what a verification has to find."""

    def __init__(self, kit: Kit, concurrency: int) -> None:
        self.copy = Copy()
        self.flow = kit.attach(self.copy, concurrency=concurrency)
        self.source: dict[int, str] = {}
        self.next = 0  # the first key that no chunk had
        self.number = 0
        self.differs = self.missing = 0

    def commit(self, changes: Iterable[tuple[str, int, int]]) -> None:
        self.flow.commit(*(one for change in changes if (one := self._change(*change)) is not None))

    def _change(self, what: str, key: int, other: int) -> Change | None:
        self.number += 1
        name = f"v{self.number}"
        if what == "truncate":
            self.source.clear()
            return update(TABLE, key=(), op=Op.TRUNCATE)
        if what == "put":
            self.source[key] = name
            return update(TABLE, key=key, after={"name": name})
        if key not in self.source:
            return None
        if what == "delete":
            return update(TABLE, key=key, before={"name": self.source.pop(key)})
        if other == key or other in self.source:
            return None
        before = self.source.pop(key)
        self.source[other] = name
        return update(TABLE, key=other, old_key=key, before={"name": before}, after={"name": name})

    def chunk(self) -> None:
        low, high = self.next, self.next + _PART
        rows = {key: name for key, name in self.source.items() if low <= key < high}
        held = {key: self.copy.rows.get((key,)) for key in rows}
        self.missing += sum(row is None for row in held.values())
        self.differs += sum(row is not None and row["name"] != rows[key] for key, row in held.items())
        self.flow.chunk(
            TABLE,
            *(read(TABLE, key=key, after={"name": rows[key]}) for key in sorted(rows)),
            after=low - 1 if low else None,
            until=high - 1 if high < len(KEYS) else None,
        )
        self.next = high

    def spoil(self, what: str, key: int) -> None:
        if what == "drop":
            self.copy.rows.pop((key,), None)
        elif (what == "flip") == ((key,) in self.copy.rows):
            self.copy.rows[(key,)] = {"name": "spoilt"}

    def rows(self) -> list[Change]:
        return [read(TABLE, key=key, after={"name": name}) for key, name in sorted(self.source.items())]


@pytest.mark.parametrize("repair", [False, True])
@examples(50)
@given(first=st.lists(_changes, max_size=12), spoilt=_spoilt, steps=_steps, concurrency=st.sampled_from([1, 3]))
def test_what_is_found_is_what_differs(
    first: list[Any], spoilt: list[Any], steps: list[Any], concurrency: int, *, repair: bool
) -> None:
    kit = Kit()
    try:
        world = World(kit, concurrency)
        world.commit([("put", key, key) for key in KEYS[::2]])
        world.commit(first)
        for what, key in spoilt:
            world.spoil(what, key)
        world.flow.begin_verify(repair=repair)
        for step, given_ in steps:
            if step == "commit":
                world.commit(given_)
            elif step == "chunk" and world.next < len(KEYS):
                world.chunk()
            elif step == "wait":
                world.copy.waits = given_
            elif step == "fail":
                world.copy.fails.add(given_)
            elif step == "spoil":
                world.spoil(*given_)
        while world.next < len(KEYS):
            world.chunk()
        world.copy.waits = False
        world.copy.fails.clear()
        extra = {key for (key,) in world.copy.rows} - set(world.source)
        found = world.flow.end_verify(TABLE, *world.rows())
        assert found.ended
        assert not found.not_compared
        assert not found.trouble
        if repair:
            if not any(step == "spoil" for step, _ in steps):  # behind its back, after it was compared
                assert world.copy.rows == {(key,): {"name": name} for key, name in world.source.items()}
            assert not {key for (key,) in world.copy.rows} - set(world.source)
            assert found.removed == found.extra
        else:
            assert (found.differs, found.missing, found.extra) == (world.differs, world.missing, len(extra))
    finally:
        kit.close()
