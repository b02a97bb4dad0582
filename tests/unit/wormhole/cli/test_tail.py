from __future__ import annotations

import signal
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from publisher.source import memory
from wormhole.cli import tail as tail_module
from wormhole.cli.tail import TailEvents, TailOptions, tail, tail_source
from wormhole.errors import DecodeError, FilterError, PositionError, SourceUnavailable
from wormhole.filters import Filter
from wormhole.loss import LogGap
from wormhole.position import LogPosition
from wormhole.segment import Segment
from wormhole.update import Update
from wormhole.values import Op


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


def test_missing_log_is_told_in_its_place() -> None:
    source = log_of(b"a")
    source.skip(3)
    source.commit([(Op.DELETE, "default", b"b")])
    seen = Seen()
    tail_source(source, TailOptions(EVERYTHING, "earliest", follow=False), seen.events())
    assert seen == [(Op.UPSERT, (b"a",)), "not_logged", (Op.DELETE, (b"b",))]


def test_what_cannot_be_decoded_is_told_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_wrong_place_is_refused() -> None:
    with pytest.raises(PositionError):
        tail_source(log_of(), TailOptions(EVERYTHING, "yesterday"), Seen().events())


def test_a_filter_that_the_source_cannot_decide_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(FilterError, match="needs the row before"):
        tail(f"rocksdb://{tmp_path}/none", TailOptions(Filter.parse("changed(x)")), Seen().events())


def test_the_folder_is_beside_the_database_where_we_may_and_goes_with_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tail_module._state_folder(tmp_path / "store") as folder:
        assert folder.parent == tmp_path
    with pytest.raises(SourceUnavailable):
        tail(f"rocksdb://{tmp_path}/none", TailOptions(EVERYTHING), Seen().events())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with tail_module._state_folder(tmp_path / "store") as folder:
        assert folder.parent != tmp_path
    assert not folder.exists()
    with tail_module._state_folder(None) as folder:
        assert folder.parent == Path(tempfile.gettempdir())


def test_what_a_killed_tail_left_is_cleared_away_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "_SETTLED_S", -1.0)
    left = tmp_path / ".wormhole-tail-left"
    left.mkdir()
    (left / "000004.log").write_bytes(b"x")
    with tail_module._state_folder(tmp_path / "store") as first:
        assert not left.exists()
        with tail_module._state_folder(tmp_path / "store") as second:
            assert first.exists()
            assert first != second
    monkeypatch.setattr(tail_module, "_SETTLED_S", 60.0)
    left.mkdir()
    with tail_module._state_folder(tmp_path / "store"):
        assert left.exists()


def test_sigterm_is_an_interruption_while_it_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), tail_module._terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
