"""A flow that is moved between caravans at any moment delivers every wanted update exactly once, in order.

The log is the memory source's, cut into segments of random size, so that large transactions come in pieces; caravans
are its readers with a change buffer each. The truth is computed from what was committed, without any of the code under
test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from caravan.buffer import ChangeBuffer
from caravan.flow import CaravanFlow, CaravanFlowState
from datastores.memory.source import MemorySource
from tests.support.seed import examples
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.changes import Change
from wormhole.ports.log_source import LogReader
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch

_SHARDS = ("log.a", "log.b")
_FILTERS = {
    "all": Filter.parse(None),
    "even": Filter.parse('key in (b"0", b"2", b"4", b"6", b"8")'),
    "none": Filter.parse('key == b"x"'),
    "deletes": Filter.parse('op == "delete"'),
}
_WANTED: dict[str, Callable[[Op, object], bool]] = {
    "all": lambda op, key: True,
    "even": lambda op, key: key in {b"0", b"2", b"4", b"6", b"8"},
    "none": lambda op, key: False,
    "deletes": lambda op, key: op is Op.DELETE,
}

_changes = st.builds(
    lambda table, digit, delete: Change(
        Op.DELETE if delete else Op.UPSERT, table, b"%d" % digit, None if delete else {"value": b"v" * digit}
    ),
    st.sampled_from("ab"),
    st.integers(0, 9),
    st.booleans(),
)
_transactions = st.lists(st.lists(_changes, max_size=12), min_size=1, max_size=12)


@dataclass
class _Rider:
    """A caravan: a reader, its buffer and the marker behind what it read."""

    reader: LogReader
    buffer: ChangeBuffer
    marker: Datamarker


@dataclass
class _Delivery:
    """What a flow handed on, decoded."""

    ids: list[str] = field(default_factory=list)
    keys: list[tuple[object, ...]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """Offsets of the transaction ends that travelled."""


@dataclass
class _Truth:
    ids: list[str] = field(default_factory=list)
    keys: list[tuple[object, ...]] = field(default_factory=list)
    until: dict[int, int] = field(default_factory=dict)
    """Offset of a place to the number of wanted updates before it."""
    touched: list[int] = field(default_factory=list)
    """Offsets of the ends of transactions that touched the shard."""
    wanted: list[int] = field(default_factory=list)
    """Those of them that have a wanted update."""


class _Journey:
    """One flow, the caravans it may travel with, and what it delivered."""

    def __init__(self, transactions: list[list[Change]], shard: str, wanted: str) -> None:
        self.source = MemorySource(sharding=Sharding("table"), log="log", now_us=lambda: 0)
        self.start = self.source.latest()
        self.shard, self.wanted = shard, wanted
        self.truth = _Truth(until={self.start.order.offset: 0})
        self.delivery = _Delivery()
        for number, transaction in enumerate(transactions, 1):
            self._expect(number, transaction, self.source.commit(transaction))
        self.caravans: list[_Rider] = []
        self.flow = CaravanFlow("app", shard, _FILTERS[wanted], self.start, 1, lambda: None)
        self.schemas: dict[int, Schema] = {}

    def _expect(self, number: int, transaction: list[Change], marker: Datamarker) -> None:
        truth, offset = self.truth, marker.order.offset
        mine = [(i, c) for i, c in enumerate(transaction) if f"log.{c.table}" == self.shard]
        kept = [(i, c) for i, c in mine if _WANTED[self.wanted](c.op, c.key)]
        truth.ids += [f"mem:{number}:{i}" for i, _ in kept]
        truth.keys += [(c.key,) for _, c in kept]
        truth.until[offset] = len(truth.ids)
        if mine:
            truth.touched.append(offset)
        if kept:
            truth.wanted.append(offset)

    # -- what may happen, in any order

    def open(self, marker: Datamarker) -> None:
        self.caravans.append(_Rider(self.source.open(marker), ChangeBuffer(marker.order), marker))

    def read(self, caravan: _Rider, size: int) -> bool:
        segment = caravan.reader.read(size, 0)
        if segment is None:
            return False
        caravan.buffer.append(segment)
        caravan.marker = segment.marker or caravan.marker
        return True

    def drop(self, caravan: _Rider) -> None:
        buffer = caravan.buffer
        rides = self.flow._buffer is buffer
        if buffer.first < buffer.end and not (rides and self.flow.cursor == buffer.first):
            buffer.drop_oldest()

    def board(self, caravan: _Rider) -> bool:
        cursor = caravan.buffer.join(self.flow.place)
        if cursor is not None:
            self.flow.board(caravan.buffer, cursor)
        return cursor is not None

    def deliver(self, most: int) -> None:
        while most and (piece := self.flow.peek()) is not None:
            most -= 1
            assert piece.gap is None
            if piece.body is not None:
                self._receive(piece.body.data, piece.body.schemas)
                assert piece.body.updates == len(parse_body(piece.body.data).updates)
            self.flow.take()
            if piece.marker is not None:
                # Whatever is before a marker was delivered, and nothing else.
                assert len(self.delivery.ids) == self.truth.until[piece.marker.order.offset]
                assert piece.marker == self.flow.marker
                assert self.flow.place == piece.marker.order

    def _receive(self, data: bytes, schemas: tuple[Schema, ...]) -> None:
        self.schemas.update({schema.id: schema for schema in schemas})
        body = parse_body(data)
        for update in Batch(body, self.shard, 1, False, self.schemas.__getitem__).updates():
            self.delivery.ids.append(update.id)
            self.delivery.keys.append(update.key)
            assert f"log.{update.table}" == self.shard
        self.delivery.ended += [body.position_of(tx).offset for tx in range(len(body.tx_end))]

    def finish(self) -> None:
        self.open(self.flow.marker)
        assert self.board(self.caravans[-1])
        while self.read(self.caravans[-1], 1 << 20):
            pass
        self.deliver(1 << 20)

    def check(self) -> None:
        assert self.delivery.ids == self.truth.ids
        assert self.delivery.keys == self.truth.keys
        ended = self.delivery.ended
        assert all(a < b for a, b in pairwise(ended)), "a transaction ended twice, or out of order"
        assert set(self.truth.wanted) <= set(ended) <= set(self.truth.touched)


@examples(100)
@given(_transactions, st.sampled_from(_SHARDS), st.sampled_from(sorted(_FILTERS)), st.data())
def test_every_wanted_update_once_whatever_the_moves(
    transactions: list[list[Change]], shard: str, wanted: str, data: st.DataObject
) -> None:
    journey = _Journey(transactions, shard, wanted)
    markers = [journey.start]
    journey.open(journey.start)
    steps = st.sampled_from(["read", "read", "read", "drop", "board", "deliver", "deliver", "leave", "open", "start"])
    for step in data.draw(st.lists(steps, max_size=60)):
        caravan = journey.caravans[data.draw(st.integers(0, len(journey.caravans) - 1))]
        match step:
            case "read":
                journey.read(caravan, data.draw(st.integers(1, 120)))
                if caravan.marker not in markers:
                    markers.append(caravan.marker)
            case "drop":
                journey.drop(caravan)
            case "board":
                journey.board(caravan)
            case "deliver":
                journey.deliver(data.draw(st.integers(1, 3)))
            case "leave":
                journey.flow.leave(CaravanFlowState.WAITING, "the test said so")
            case "open":  # a caravan anywhere, also far behind the flow
                journey.open(data.draw(st.sampled_from(markers)))
            case _:
                journey.open(journey.flow.marker)
                assert journey.board(journey.caravans[-1])
    journey.finish()
    journey.check()
