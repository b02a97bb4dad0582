"""Which rows the segments of a relay file change: as they are collected, and as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caravan.backfill.encoding import DamagedError
from publisher.relay import lost_keys as module
from publisher.relay.lost_keys import LostFile, LostKeysBuilder, lost_file, lost_file_to_bytes
from tests.support.present import present
from wormhole.model import lost_keys as model
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.lost_keys import LostKeys, TableKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op, Value
from wormhole.wire.rows import encode_key, encode_row
from wormhole.wire.runs import RunsBuilder

ID = (Column("id", "int"),)
VALUES = (Column("v", "text"),)
ME = b"identity"


def place(offset: int) -> LogPosition:
    return LogPosition(1, 1, offset)


def changes(*rows: tuple[str, str, bytes], key: tuple[Column, ...] = ID) -> Segment:
    """One transaction; each row has its shard, its table and its bytes."""
    builder = RunsBuilder()
    builder.begin("mem", 1, 0, place(0))
    for shard, table, row in rows:
        builder.add((shard,), Schema(table, key, VALUES if key else ()), row)
    builder.end(place(9))
    return Segment(place(0), place(9), builder.take(), Datamarker(place(9), "1", place(9)), 1)


def built(*segments: Segment) -> LostFile:
    builder = LostKeysBuilder()
    for segment in segments:
        builder.add(segment)
    return present(builder.built(place(0), place(9)))


def keys(*values: Value) -> frozenset[bytes]:
    return frozenset(encode_key((value,)) for value in values)


def test_keys_of_every_operation_by_shard_and_table() -> None:
    found = built(
        changes(
            ("s", "t", encode_row(Op.INSERT, (1,), after=("x",))),
            ("s", "t", encode_row(Op.UPDATE, (2,), after=("x" * 300,), before=("y",))),
            ("s", "t", encode_row(Op.DELETE, (3,), before=("y",))),
            ("s", "u", encode_row(Op.UPSERT, (4,), after=("x",))),
            ("r", "u", encode_row(Op.MERGE, (5,), after=("x",))),
            ("s", "t", encode_row(Op.INSERT, (6,), too_large=True)),
        ),
        changes(("s", "t", encode_row(Op.INSERT, (1,), after=("z",)))),
    )
    assert found.of("s").tables == {"t": TableKeys(ID, keys(1, 2, 3, 6)), "u": TableKeys(ID, keys(4))}
    assert found.of("r").tables == {"u": TableKeys(ID, keys(5))}
    assert found.of("elsewhere").tables == {}


def test_a_row_that_moved_has_two_keys() -> None:
    found = built(changes(("s", "t", encode_row(Op.UPDATE, (2,), after=("x",), old_key=(1,)))))
    assert found.of("s").tables["t"].keys == keys(1, 2)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 20_000])
def test_keys_of_any_length_and_of_several_columns(length: int) -> None:
    key = ("k" * length, 7)
    row = encode_row(Op.DELETE, key, before=("x" * 500,))
    found = built(changes(("s", "t", row), key=(Column("a", "text"), *ID)))
    assert found.of("s").tables["t"].keys == {encode_key(key)}


@pytest.mark.parametrize(
    ("segment", "why"),
    [
        (changes(("s", "t", encode_row(Op.TRUNCATE, ()))), "emptied"),
        (changes(("s", "t", encode_row(Op.TRUNCATE, ())), key=()), "no key"),
        (changes(("s", "t", encode_row(Op.DELETE_RANGE, (1,), key_end=(5,)))), "range"),
        (changes(("s", "t", encode_row(Op.INSERT, (), after=("x",))), key=()), "no key"),
        (changes(("s", "t", encode_row(Op.READ, (1,), after=("x",)))), "not known here"),
        (changes(("s", "t", encode_row(Op.INSERT, (1, 2), after=("x",))), key=(*ID, *VALUES)), "its key changed"),
        (replace(changes(), replaced={"t": place(3)}), "without a trace in the log"),
    ],
)
def test_a_table_of_which_any_row_may_have_changed_is_whole(segment: Segment, why: str) -> None:
    one = changes(
        ("s", "t", encode_row(Op.INSERT, (1,), after=("x",))), ("s", "u", encode_row(Op.INSERT, (1,), after=("x",)))
    )
    for found in (built(one, segment, one), built(segment, one)):
        table = found.of("s").tables["t"]
        assert why in table.whole
        assert not table.keys
        assert found.of("s").tables["u"] == TableKeys(ID, keys(1))


@pytest.mark.parametrize(
    "segment",
    [
        replace(changes(), gap=LogGap(LossKind.NOT_LOGGED, "1", "2", "lost")),
        replace(changes(), broken={"s": DecodeError("bad")}),
        replace(changes(), end=place(8)),
    ],
)
def test_segments_that_do_not_say_all_say_nothing(segment: Segment) -> None:
    builder = LostKeysBuilder()
    builder.add(segment)
    assert builder.built(place(0), place(9)) is None
    assert builder.unknown


def test_over_the_bound_the_largest_tables_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MOST_KEYS", 10)
    monkeypatch.setattr(module, "MOST_KEYS", 10)
    many = [("s", "t", encode_row(Op.INSERT, (number,), after=("x",))) for number in range(30)]
    few = [("s", "u", encode_row(Op.INSERT, (number,), after=("x",))) for number in range(6)]
    found = built(changes(*many, *few)).of("s")
    assert "more than 10 keys" in found.tables["t"].whole
    assert found.tables["u"].keys == keys(*range(6))
    together = LostKeys.joined([LostKeys({name: found.tables["u"]}) for name in ("a", "b")])
    assert len(together.whole) == 1
    monkeypatch.setattr(model, "MOST_KEY_BYTES", 8)
    assert LostKeys.joined([LostKeys({"u": found.tables["u"]})]).whole


def test_bytes() -> None:
    found = built(
        changes(
            ("s", "t", encode_row(Op.INSERT, (1,), after=("x",))),
            ("r", "t", encode_row(Op.INSERT, (2,), after=("x",))),
            ("r", "u", encode_row(Op.TRUNCATE, ())),
        ),
        replace(changes(), replaced={"v": place(3)}),
    )
    data = lost_file_to_bytes(found, ME)
    assert lost_file(data, ME) == found
    assert lost_file(data, b"another") is None
    of_r = present(lost_file(data, ME, shards=("r",)))
    assert of_r.of("r") == found.of("r")
    assert (
        of_r.of("s").tables
        == found.of("nowhere").tables
        == {"v": TableKeys(whole="its rows changed without a trace in the log")}
    )
    for size in range(len(data)):
        with pytest.raises(DamagedError):
            lost_file(data[:size], ME)


def test_what_operators_read() -> None:
    assert str(LostKeys({"t": TableKeys(ID, keys(1))})) == "1 key of 1 table, from the relay"
    two = LostKeys({"t": TableKeys(ID, keys(1)), "u": TableKeys(ID, keys(*range(1000)))})
    assert str(two) == "1,001 keys of 2 tables, from the relay"
    assert str(two.of(lambda table: table == "t")) == "1 key of 1 table, from the relay"
    mixed = LostKeys({**two.tables, "v": TableKeys(whole="it was emptied")})
    assert str(mixed) == "1,001 keys of 2 tables, from the relay; v as a whole (it was emptied)"
    whole = LostKeys({name: TableKeys(whole="it was emptied") for name in "abcd"})
    assert str(whole).endswith("c as a whole (it was emptied) and 1 more")
    assert str(LostKeys()) == "0 keys of 0 tables, from the relay"


def test_what_changed_in_either() -> None:
    one, other = TableKeys(ID, keys(1)), TableKeys(ID, keys(2))
    assert one.joined(other) == TableKeys(ID, keys(1, 2))
    assert one.joined(TableKeys(VALUES, keys(2))).whole
    assert one.joined(TableKeys(whole="why")) == TableKeys(whole="why") == TableKeys(whole="why").joined(one)
