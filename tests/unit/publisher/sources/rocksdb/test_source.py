"""What the contract suite and the integration tests do not reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.sources.rocksdb.source import RocksSource
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import PositionError, PositionPurged, SourceUnavailable
from wormhole.model.sharding import Sharding


def open_source(tmp_path: Path) -> RocksSource:
    return RocksSource(
        tmp_path / "store",
        log="log",
        state_dir=tmp_path / "state",
        sharding=Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=1 << 30,
    )


def test_nothing_before_start_nor_after_stop(tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    source = open_source(tmp_path)
    with pytest.raises(SourceUnavailable):
        source.latest()
    source.start()
    assert source.latest() == source.earliest()
    reader = source.open(source.latest())
    source.stop()
    assert reader.read(100, 0.0) is None
    with pytest.raises(SourceUnavailable):
        source.status()
    writer.exit()


def test_places_inside_a_transaction_mean_its_beginning(tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    source = open_source(tmp_path)
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
    source.stop()
    writer.exit()


def test_a_database_that_was_moved_is_no_end_of_the_log(tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    source = open_source(tmp_path)
    source.start()
    writer.put(b"a", b"1")
    begin = source.earliest()
    reader = source.open(begin)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    segment = reader.read(1 << 20, 0.0)  # what is kept is read to its end
    assert segment is not None
    assert segment.marker is not None
    with pytest.raises(SourceUnavailable, match="was moved or deleted") as caught:
        reader.read(1 << 20, 0.0)
    assert "`source`" in str(caught.value.hint)
    with pytest.raises(SourceUnavailable, match="was moved or deleted"):
        source.open(segment.marker)
    source.open(begin).close()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    source.open(segment.marker).close()
    source.stop()
    writer.exit()
