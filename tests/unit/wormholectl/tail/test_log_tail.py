from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.memory import source as memory
from wormhole.config.datastores import datastore
from wormhole.filters import Filter
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    FilterError,
    PositionError,
    PositionPurged,
    SourceSilent,
    SourceUnavailable,
)
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.update import Update
from wormholectl.tail.log_tail import ShownPlaces, TailEvents, TailOptions, tail, tail_source


class Seen(list[Any]):
    """Collects what a tail tells, and calls back at a number of updates."""

    def events(self) -> TailEvents:
        return TailEvents(self._update, self._gap)

    def _update(self, update: Update) -> None:
        self.append((update.op, update.key))

    def _gap(self, gap: LogGap, begin: LogPosition) -> None:
        self.append(gap.kind.value)


def log_of(*keys: bytes) -> memory.MemorySource:
    source = memory.MemorySource()
    source.start()
    for key in keys:
        source.commit([(Op.UPSERT, "default", key, {"value": b"v"})])
    return source


EVERYTHING = Filter.parse(None)


def test_the_last_update_of_a_large_transaction_says_so_also_where_the_filter_drops_its_end() -> None:
    source = log_of()
    value = {"value": b"v" * 1000}
    source.commit([(Op.UPSERT, "wanted" if i < 3 else "other", b"%d" % i, value) for i in range(1000)])
    source.commit([(Op.UPSERT, "wanted", b"next", value)])
    seen: list[tuple[Any, bool]] = []
    events = TailEvents(lambda update: seen.append((update.key[0], update.ends_transaction)), lambda gap, begin: None)
    wanted = Filter.parse('table == "wanted"')
    assert tail_source(source, TailOptions(wanted, "earliest", follow=False), events) == 4
    assert seen == [(b"0", False), (b"1", False), (b"2", True), (b"next", True)]


def test_from_the_beginning_to_the_end() -> None:
    seen, source = Seen(), log_of(b"a", b"b")
    assert tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), seen.events()) == 2
    assert seen == [(Op.UPSERT, (b"a",)), (Op.UPSERT, (b"b",))]


def test_without_follow_it_ends_also_while_the_log_grows() -> None:
    seen, source = Seen(), log_of(b"a", b"b")

    def update(told: Update) -> None:
        seen.append(told.key)
        source.commit([(Op.UPSERT, "default", b"meanwhile", {"value": b"v"})])

    events = TailEvents(update, lambda gap, begin: None)
    told = tail_source(source, TailOptions(EVERYTHING, "earliest", limit=100, follow=False), events)
    assert told < 100
    assert seen[:2] == [(b"a",), (b"b",)]


def test_only_what_the_filter_keeps_and_up_to_the_limit() -> None:
    seen, source = Seen(), log_of(b"a", b"b1", b"b2", b"b3")
    options = TailOptions(Filter.parse('key startswith "b"'), "earliest", limit=2)
    assert tail_source(source, options, seen.events()) == 2
    assert [key for _, key in seen] == [(b"b1",), (b"b2",)]


def test_missing_log_is_reported_in_its_place() -> None:
    source = log_of(b"a")
    source.skip(3)
    source.commit([(Op.DELETE, "default", b"b")])
    seen = Seen()
    tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), seen.events())
    assert seen == [(Op.UPSERT, (b"a",)), "not_logged", (Op.DELETE, (b"b",))]


def test_what_cannot_be_decoded_is_reported_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    source, bad = log_of(b"a", b"b"), DecodeError("shop.audit has no names")
    plain = memory._MemoryReader.read

    def read(self: memory._MemoryReader, max_bytes: int, wait_s: float) -> Segment | None:
        segment = plain(self, max_bytes, wait_s)
        return segment and replace(segment, broken={"log": bad})

    monkeypatch.setattr(memory._MemoryReader, "read", read)
    seen = Seen()
    errors: list[DecodeError] = []
    events = TailEvents(seen.events().update, seen.events().gap, broken=errors.append)
    assert tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), events) == 2
    assert errors == [bad]


def test_places_are_shown_as_the_datastore_writes_them_too() -> None:
    place = LogPosition(1, 3, 1892)
    assert ShownPlaces(datastore("mysql"), "binlog").shown(place) == "1/3/1892 (binlog.000003:1892)"
    assert ShownPlaces(datastore("mysql")).shown(place) == "1/3/1892"
    source = log_of(b"a")
    events = TailEvents(lambda update: source.set_reachable(False), lambda gap, begin: None)
    with pytest.raises(SourceUnavailable, match="--from 1/"):
        tail_source(source, TailOptions(EVERYTHING, "earliest"), events, ShownPlaces(datastore("mysql"), "binlog"))


def test_latest_waits_for_what_comes() -> None:
    source = log_of(b"old")
    seen = Seen()
    writer = threading.Thread(target=lambda: source.commit([(Op.UPSERT, "default", b"new", {"value": b"v"})]))
    events = seen.events()
    opened = TailEvents(events.update, events.gap, lambda marker: writer.start())
    assert tail_source(source, TailOptions(EVERYTHING, limit=1), opened) == 1
    writer.join()
    assert seen == [(Op.UPSERT, (b"new",))]


def test_an_error_of_the_reader_arrives_and_its_thread_ends() -> None:
    source = log_of(b"a")
    end = source.latest().order
    events = TailEvents(lambda update: source.set_reachable(False), lambda gap, begin: None)
    with pytest.raises(SourceUnavailable) as caught:
        tail_source(source, TailOptions(EVERYTHING, "earliest"), events)
    assert caught.value.hint == f"once it is back, --from {end} goes on where this ended"
    assert not [thread for thread in threading.enumerate() if thread.name == "tail-reader"]


class Breaking(memory.MemorySource):
    """A log whose readers break after two pieces: each time with the next of ``faults``, behind what ``happens``
    does then."""

    def __init__(self, *faults: SourceUnavailable) -> None:
        super().__init__()
        self.faults = list(faults)
        self.happens: Callable[[], object] = lambda: None

    def open(self, marker: Datamarker) -> Any:
        reader = super().open(marker)
        plain = reader.read
        pieces = 0

        def read(max_bytes: int, wait_s: float) -> Segment | None:
            nonlocal pieces
            if pieces == 2 and self.faults:
                self.happens()
                raise self.faults.pop(0)
            pieces += 1
            return plain(20, wait_s)

        reader.read = read  # type: ignore[method-assign]
        return reader


@pytest.mark.parametrize("fault", [SourceSilent("nothing came for 10 s"), SourceUnavailable("the stream broke")])
def test_a_reader_that_breaks_amid_a_transaction_is_opened_again_and_nothing_is_shown_twice(
    fault: SourceUnavailable,
) -> None:
    source, seen, said = Breaking(fault, fault), Seen(), list[str]()
    source.start()
    source.commit([(Op.UPSERT, "default", b"%d" % n, {"value": b"v" * 20}) for n in range(9)])
    source.commit([(Op.UPSERT, "default", b"last", {"value": b"v"})])
    events = TailEvents(seen.events().update, seen.events().gap, waiting=said.append)
    assert tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), events) == 10
    assert [key for _, (key,) in seen] == [*(b"%d" % n for n in range(9)), b"last"]
    assert said == [f"{fault.message}; it is opened again at 1/1/0"] * 2


@pytest.mark.parametrize("kind", ["purged", "restored"])
def test_log_that_goes_on_the_way_ends_it_with_the_place_to_go_on_from(kind: str) -> None:
    source = Breaking(SourceUnavailable("the stream broke"))
    source.start()
    first, second, _, end = (source.commit([(Op.UPSERT, "default", b"k" * 20, {"value": b"v"})]) for _ in range(4))
    source.happens = lambda: source.purge(end) if kind == "purged" else source.restore(first, new_incarnation=True)
    with pytest.raises((PositionPurged, Diverged)) as caught:
        tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), Seen().events())
    assert f"everything up to {second.order} was shown; --from earliest" in str(caught.value.hint)


def test_a_wrong_place_is_refused() -> None:
    with pytest.raises(PositionError):
        tail_source(log_of(), TailOptions(EVERYTHING, "yesterday"), Seen().events())


def test_a_filter_that_the_source_cannot_decide_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(FilterError, match="needs the row before"):
        tail(f"rocksdb://{tmp_path}/none", TailOptions(Filter.parse("changed(x)")), Seen().events())
