"""``wormholectl tail``: what is read of a log, and how it is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from datastores.memory import source as memory
from datastores.memory.source import MemorySource
from tests.support.command_line import run
from wormhole.config.datastores import datastore
from wormhole.filters import Filter
from wormhole.formats.json_values import value_as_json
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    FilterError,
    PositionError,
    PositionPurged,
    SourceSilent,
    SourceUnavailable,
)
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.datastore import Login
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.update import Update
from wormholectl.show.printer import SCHEMA
from wormholectl.tail import log_tail as tail_module
from wormholectl.tail.log_tail import Selected, ShownPlaces, TailEvents, TailOptions, tail, tail_source
from wormholectl.tail.show import (
    gap_as_json,
    gap_as_line,
    short,
    update_as_json,
    update_as_line,
)

# --- log tail ---


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


# --- commands ---


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tail_that_left_something_out_says_so_once_and_ends_with_a_problem(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        for place in ("1/1/4", "1/1/99"):
            events.broken(DecodeError("shop.audit has no names", hint="skip_tables", position=place))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    assert run("tail", "rocksdb:///x", *options) == (
        1,
        "",
        "warning: not shown: shop.audit has no names (position 1/1/4) [log-undecodable]. Next: skip_tables\n",
    )


def test_each_table_that_is_left_out_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        for tables in (("shop.a", "shop.b"), ("shop.a",), ("shop.a", "shop.c", "shop.b"), tuple(map(str, range(60)))):
            events.broken(DecodeError("shop.a has no names", tables=tables))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    code, _, err = run("tail", "rocksdb:///x")
    assert code == 1
    assert [line.removeprefix("warning: not shown") for line in err.splitlines()[:4]] == [
        ": shop.a has no names [log-undecodable]",
        " either: shop.b",
        " either: shop.c",
        f" either: {', '.join(map(str, range(50)))} and 10 more",
    ]


def test_a_log_that_is_purged_while_it_is_read_ends_the_tail_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Breaking(SourceUnavailable("the stream broke"))
    source.start()
    _, second, _, end = (source.commit([(Op.UPSERT, "default", b"k" * 20, {"value": b"v"})]) for _ in range(4))
    source.happens = lambda: source.purge(end)

    @contextmanager
    def open_log(url: str, login: Login) -> Iterator[MemorySource]:
        yield source

    monkeypatch.setattr(tail_module, "open_log", open_log)
    status, shown, errors = run("tail", "rocksdb:///x", "--from", "earliest", "--no-follow", "--json")
    assert (status, shown.count("\n")) == (1, 2)
    assert f"next: everything up to {second.order} was shown; --from earliest shows what the log holds now" in errors


@pytest.mark.parametrize(("kind", "status"), [(LossKind.PURGED, 1), (LossKind.NOT_LOGGED, 0)])
def test_log_that_is_missing_on_the_way_is_a_problem_if_the_log_once_held_it(
    kind: LossKind, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        events.gap(LogGap(kind, "5", "9", "file 3 is gone"), LogPosition(1, 4, 0))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    ended = run("tail", "rocksdb:///x", "--no-follow")
    assert ended[0] == status
    assert ("error [data-lost]: the log no longer holds all of what was asked for: file 3 is gone" in ended[2]) == bool(
        status
    )


def test_the_log_may_be_named_where_its_url_does_not_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tail(url: str, *_given: object) -> int:
        asked.append(url)
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    for name in ("two", "shop/main/two"):
        assert run("tail", "postgres://u@h/shop", "--log", name)[0] == 0
    assert set(asked) == {"postgres://u@h/shop?publication=wormhole_two&slot=wormhole_two"}


# --- show ---


BYTES = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))
USERS = Schema("shop.users", (Column("id", "int"),), (Column("email", "text"), Column("age", "int")))


def update(schema: Schema, row: bytes, committed_at_us: int = 1_700_000_000_000_000) -> Update:
    builder = RunsBuilder()
    builder.begin("db", 7, committed_at_us, LogPosition(1, 2, 0))
    builder.add(["log"], schema, row)
    builder.end(LogPosition(1, 2, 30))
    segment = Segment(LogPosition(1, 2, 0), LogPosition(1, 2, 30), builder.take(), None, 30)
    (found,) = Selected(Filter.parse(None)).of(segment)
    return found


def line(found: Update) -> str:
    return "".join(text for text, _ in update_as_line(found))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), {"double": "nan"}),
        (Decimal("1.50"), {"decimal": "1.50"}),
        ("é", "é"),
        ("é".encode(), "é"),
        (b"\xff", {"b64": "/w=="}),
        (UNAVAILABLE, {"unavailable": True}),
        ({b"a": b"\xff"}, {"entries": [["a", {"b64": "/w=="}]]}),
    ],
)
def test_values_for_programs(value: Value, expected: Any) -> None:
    assert value_as_json(value) == expected
    json.dumps(value_as_json(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (UNAVAILABLE, "(not in the log)"),
        (False, "false"),
        (7, "7"),
        (Decimal("1.50"), "1.50"),
        ("plain", "plain"),
        ("a\x1b[31m", "'a\\x1b[31m'"),
        (b"", ""),
        (b"user:1", "user:1"),
        (b"a\x1b[31m", "0x611b5b33316d"),
        (b"\xff\x00", "0xff00"),
        (b"x" * 61, "x" * 60 + "... (61 bytes)"),
        ("x" * 61, "x" * 60 + "... (61 characters)"),
        (("é" * 200).encode(), "é" * 60 + "... (400 bytes)"),
        (b"x" + ("é" * 200).encode(), "x" + "é" * 59 + "... (401 bytes)"),
        (b"\xff" * 31, "0x" + "ff" * 30 + "... (31 bytes)"),
        ({b"a": b"1"}, "{a=1}"),
    ],
)
def test_values_for_people_are_short_and_cannot_command_the_terminal(value: Value, expected: str) -> None:
    assert short(value) == expected


def test_an_update_for_programs() -> None:
    found = update_as_json(update(BYTES, encode_row(Op.UPSERT, [b"k"], after=[b"\xff"])), "binlog.000002:30")
    assert found == {
        "schema": SCHEMA,
        "type": "update",
        "id": "db:7:0",
        "op": "upsert",
        "table": "default",
        "key": ["k"],
        "old_key": None,
        "key_end": None,
        "before": None,
        "after": {"value": {"b64": "/w=="}},
        "too_large": False,
        "entered": False,
        "left": False,
        "committed_at": "2023-11-14T22:13:20.000000Z",
        "position": "1/2/30",
        "native_position": "binlog.000002:30",
        "transaction": "db:7",
        "ends_transaction": True,
    }
    assert update_as_json(update(BYTES, encode_row(Op.DELETE, [b"k"]), 0), "")["committed_at"] is None


def test_an_update_for_people() -> None:
    assert line(update(BYTES, encode_row(Op.UPSERT, [b"k"], after=[b"v"]))).endswith("upsert        default  k = v")
    assert (
        line(update(BYTES, encode_row(Op.READ, [b"k"], after=[b"v"]), 0)) == f"{'-':<23}  read          default  k = v"
    )
    assert line(update(BYTES, encode_row(Op.DELETE, [b"k"]), 0)) == f"{'-':<23}  delete        default  k"
    assert line(update(BYTES, encode_row(Op.DELETE_RANGE, [b"a"], key_end=[b"c"]))).endswith("default  a .. c")
    moved = encode_row(Op.UPDATE, [2], old_key=[1], after=["x", None])
    assert line(update(USERS, moved)).endswith("shop.users  2 (was 1) = email=x, age=NULL")
    assert line(update(BYTES, encode_row(Op.UPSERT, [b"k"], too_large=True))).endswith(
        "k (too large: the value was left out)"
    )


def test_missing_log() -> None:
    gap, begin = LogGap(LossKind.PURGED, "5", "9", "file 3 is gone"), LogPosition(1, 4, 0)
    assert gap_as_line(gap, "1/4/0")[0][0] == "--- missing (purged) 5-9 before 1/4/0: file 3 is gone"
    assert gap_as_json(gap, begin, "") == {
        "schema": SCHEMA,
        "type": "gap",
        "kind": "purged",
        "first_missing": "5",
        "last_missing": "9",
        "message": "file 3 is gone",
        "position": "1/4/0",
        "native_position": None,
    }
    assert "missing (not_logged) before" in gap_as_line(LogGap(LossKind.NOT_LOGGED, "", "", "x"), "1/4/0")[0][0]
