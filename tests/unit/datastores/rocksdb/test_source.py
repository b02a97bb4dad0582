"""What the contract suite and the integration tests do not reach."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.rocksdb.source import RocksSource
from tests.support.eventually import until
from tests.support.present import present
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import PositionError, PositionPurged, SourceUnavailable
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import read_log


@pytest.fixture
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RocksWriter]:
    opened = RocksWriter(tmp_path / "store", **getattr(request, "param", {}))
    yield opened
    opened.exit()


@pytest.fixture
def source(writer: RocksWriter, tmp_path: Path) -> Iterator[RocksSource]:
    """A source of the writer's database; it is not started."""
    made = RocksSource(
        tmp_path / "store",
        log="log",
        state_dir=tmp_path / "state",
        sharding=Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=1 << 30,
    )
    yield made
    made.stop()


def test_nothing_before_start_nor_after_stop(source: RocksSource) -> None:
    with pytest.raises(SourceUnavailable):
        source.latest()
    source.start()
    assert source.latest() == source.earliest()
    reader = source.open(source.latest())
    source.stop()
    assert reader.read(100, 0.0) is None
    with pytest.raises(SourceUnavailable):
        source.status()


def test_places_inside_a_transaction_mean_its_beginning(writer: RocksWriter, source: RocksSource) -> None:
    source.start()
    writer.put(b"a", b"1")
    before = source.latest()
    writer.write([("put", "default", b"b", b"1"), ("put", "default", b"c", b"1")])
    after = source.latest()
    inside = f"{before.order.incarnation}/{before.order.file}/{before.order.offset + 1}"
    assert source.locate(inside).order == before.order
    assert source.locate("seq:2").order == before.order
    assert source.locate("seq:3").order == after.order
    assert source.locate("seq:0").order == source.earliest().order
    with pytest.raises(PositionError):
        source.locate("seq:4")
    with pytest.raises(PositionPurged):
        source.locate(f"{before.order.incarnation}/1/0")


def test_a_database_that_was_moved_is_no_end_of_the_log(
    tmp_path: Path, writer: RocksWriter, source: RocksSource
) -> None:
    source.start()
    writer.put(b"a", b"1")
    begin = source.earliest()
    reader = source.open(begin)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    segment = present(reader.read(1 << 20, 0.0))  # what is kept is read to its end
    assert segment.marker is not None
    with pytest.raises(SourceUnavailable, match="was moved or deleted") as caught:
        reader.read(1 << 20, 0.0)
    assert "`source`" in str(caught.value.hint)
    with pytest.raises(SourceUnavailable, match="was moved or deleted"):
        source.open(segment.marker)
    source.open(begin).close()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    source.open(segment.marker).close()


# Two memtables are flushed together: the MANIFEST does not name the file between the two that it does name.
@pytest.mark.parametrize(
    "writer",
    [{"write_buffer_size": 1 << 17, "max_write_buffer_number": 8, "min_write_buffer_number_to_merge": 2}],
    indirect=True,
    ids=["flushes two"],
)
def test_a_file_that_came_and_went_before_the_keeper_had_its_turn_is_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: RocksWriter, source: RocksSource
) -> None:
    """inotify has reported it, so its changes are not ones that were written past the log."""
    source.start()
    start = source.latest()
    watch = present(source._keeper._watch)
    wait, wake, starved, turn = watch.wait, watch.wake, threading.Event(), threading.Event()

    def late(seconds: float) -> bool:
        starved.set()
        turn.wait()
        return wait(seconds)

    def woken() -> None:
        turn.set()
        wake()

    monkeypatch.setattr(watch, "wait", late)
    wake()
    starved.wait()
    monkeypatch.setattr(watch, "wake", woken)
    writer.many(0, 28, 10_000)
    until(lambda: len(list((tmp_path / "store").glob("*.log"))) == 1, "the flush ends")
    read = read_log(source, start)
    [gap] = read.gaps
    assert gap.kind is LossKind.PURGED
    assert len(read.updates) + int(gap.last_missing) - int(gap.first_missing) + 1 == 28
