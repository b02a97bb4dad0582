"""Bodies: what is built from any run and any choice of updates is what a slow and plain reading of the run says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.model.values import Op, Value
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.rows import encode_row, entry
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.update import Batch

SCHEMAS = [Schema(name, (), ()) for name in ("t", "u", "v")]
SHARDS = ("one", "two")


@dataclass
class _Update:
    id: str
    table: str
    tx: int
    """Ordinal of its transaction in the log."""
    key: bytes


@dataclass
class _Piece:
    """A run, and what it holds by plain counting."""

    run: Run
    updates: list[_Update]
    ended: dict[int, LogPosition]
    """Transactions that end here and touched the shard: the place after each."""
    continued: int | None
    """The transaction that the run begins in the middle of."""
    open: int | None
    """The one that goes on after it."""


_rows = st.lists(st.tuples(st.sampled_from(SHARDS), st.sampled_from(SCHEMAS)), max_size=6)


@st.composite
def pieces(draw: st.DrawFn) -> list[_Piece]:
    """The pieces of shard ``one`` of a random log, cut at random."""
    builder = RunsBuilder()
    out: list[_Piece] = []
    updates: list[_Update] = []
    ended: dict[int, LogPosition] = {}
    continued: int | None = None
    touched = False

    def cut(inside: int | None) -> None:
        nonlocal updates, ended, continued
        run = builder.take().get("one")
        if run is not None:
            is_open = inside is not None and any(update.tx == inside for update in updates)
            out.append(_Piece(run, updates, ended, continued, inside if is_open else None))
        updates, ended = [], {}
        continued = inside if inside is not None and touched else None

    place = LogPosition(1, 1, 0)
    for tx, rows in enumerate(draw(st.lists(_rows, min_size=1, max_size=6))):
        source = draw(st.sampled_from(["s", "r:s"]))
        builder.begin(source, tx, 100 + draw(st.integers(0, 1)), place)
        touched = False
        for index, (shard, schema) in enumerate(rows):
            if draw(st.integers(0, 4)) == 0:
                cut(tx)
            builder.add((shard,), schema, encode_row(Op.UPSERT, (b"%d/%d" % (tx, index),)))
            if shard == "one":
                updates.append(_Update(f"{source}:{tx}:{index}", schema.table, tx, b"%d/%d" % (tx, index)))
                touched = True
        if draw(st.integers(0, 4)) == 0:
            cut(tx)
        place = LogPosition(1, 1 + draw(st.integers(0, 1)) + place.file - 1, place.offset + 10)
        builder.end(place)
        if touched:
            ended[tx] = place
        if draw(st.booleans()):
            cut(None)
    touched = False
    cut(None)
    return out


def read(parsed: ParsedBody) -> list[tuple[str, str, tuple[Value, ...]]]:
    batch = Batch(parsed, "one", 1, False, {schema.id: schema for schema in SCHEMAS}.__getitem__)
    return [(update.id, update.table, update.key) for update in batch.updates()]


def ends_of(parsed: ParsedBody) -> list[LogPosition]:
    return [parsed.position_of(tx) for tx in range(len(parsed.tx_end))]


@given(pieces())
def test_a_whole_run(log: list[_Piece]) -> None:
    for piece in log:
        body = present(build_body(piece.run, 1))
        parsed = parse_body(body.data)
        assert read(parsed) == [(update.id, update.table, (update.key,)) for update in piece.updates]
        assert body.updates == len(piece.updates)
        assert ends_of(parsed) == list(piece.ended.values())
        assert (len(parsed.tx_number) > len(parsed.tx_end)) == (piece.open is not None)


@given(pieces(), st.data())
def test_a_choice_of_updates(log: list[_Piece], data: st.DataObject) -> None:
    for piece in log:
        chosen = data.draw(st.sets(st.integers(0, len(piece.updates) - 1)) if piece.updates else st.just(set[int]()))
        keep = sorted(chosen)
        wanted = [piece.updates[i] for i in keep]
        body = build_body(piece.run, 1, keep)
        must_end = {tx for tx in piece.ended if tx == piece.continued or any(update.tx == tx for update in wanted)}
        if body is None:
            assert not wanted
            assert not must_end
            continue
        parsed = parse_body(body.data)
        assert read(parsed) == [(update.id, update.table, (update.key,)) for update in wanted]
        ends = ends_of(parsed)
        assert [piece.ended[tx] for tx in piece.ended if tx in must_end] == [
            place for place in ends if place in {piece.ended[tx] for tx in must_end}
        ]
        # An end of a transaction without a wanted update may travel only where it may have begun before.
        assert len(set(ends)) == len(ends)
        assert set(ends) <= set(piece.ended.values())


@given(pieces(), st.data())
def test_any_damaged_body_is_refused_or_read(log: list[_Piece], data: st.DataObject) -> None:
    for piece in log[:2]:
        body = present(build_body(piece.run, 1))
        damaged = bytearray(body.data)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        try:
            parsed = parse_body(bytes(damaged))
        except ProtocolError:
            continue
        for ordinal in range(len(parsed.updates)):
            tx = parsed.transaction_of(ordinal)
            assert parsed.transaction_id(tx)
            assert parsed.index_of(ordinal) >= 0
            assert parsed.schema_id_of(ordinal) is not None
            assert parsed.position_of(tx)


@pytest.mark.parametrize("extra", [b"\x0a\x00", b"\xff"])
def test_an_update_in_no_transaction_is_refused(extra: bytes) -> None:
    with pytest.raises(ProtocolError, match="batch body"):
        parse_body(extra)


@given(pieces(), st.data())
def test_marks_and_replaced_rows_stay_with_their_updates(some: list[_Piece], data: st.DataObject) -> None:
    for piece in some:
        ordinals = range(piece.run.updates)
        marks = {i: data.draw(st.integers(1, 2)) for i in ordinals if data.draw(st.booleans())}
        instead = {i: entry(encode_row(Op.DELETE, (b"instead",))) for i in marks if marks[i] == 2}
        keep = data.draw(
            st.one_of(st.none(), st.sets(st.sampled_from(ordinals)).map(sorted) if ordinals else st.just([]))
        )
        body = build_body(piece.run, 1, keep, marks=marks, instead=instead)
        kept = list(ordinals) if keep is None else keep
        if body is None:
            assert not kept
            continue
        parsed = parse_body(body.data)
        updates = Batch(parsed, "one", 1, False, {s.id: s for s in SCHEMAS}.__getitem__).updates()
        assert [update.id for update in updates] == [piece.updates[i].id for i in kept]
        assert [parsed.mark_of(n) for n in range(len(kept))] == [marks.get(i, 0) for i in kept]
        expected: list[tuple[Value, ...]] = [(b"instead",) if i in instead else (piece.updates[i].key,) for i in kept]
        assert [update.key for update in updates] == expected
