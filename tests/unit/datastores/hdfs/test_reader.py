"""Which segments a reader makes of edits, and when a place is proven, unproven, purged or of another history."""

from __future__ import annotations

from typing import Any, cast

import pytest

from datastores.hdfs.java.name_node import NameNode
from datastores.hdfs.log import reader as reading
from datastores.hdfs.log.places import EditLog, marker_at, place_after
from datastores.hdfs.log.reader import EditReader
from datastores.hdfs.log.rows import Rows
from tests.support.edits import MadeEdits, event
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import Read


def created(path: str, at_ms: int = 1_700_000_000_000) -> Any:
    return event("Create", type=1, path=path, ctime=at_ms, ownerName="ann", groupName="staff")


class Scene:
    """A reader over made edits."""

    def __init__(self, most: int = 1000) -> None:
        self.made = MadeEdits(most)
        self.log = EditLog(cast(NameNode, self.made))

    def open(self, marker: Datamarker) -> EditReader:
        self.log.prove(marker)
        return EditReader(self.log, Rows("log", Sharding("table"), 1 << 20), marker)

    def read(self, marker: Datamarker, max_bytes: int = 1 << 20) -> Read:
        reader = self.open(marker)
        read = Read(last_end=marker.order)
        while (segment := reader.read(max_bytes, 0.0)) is not None:
            read.add(segment)
        return read


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    for number in range(1, 6):
        scene.made.commit(created(f"/a/{number}"))
    return scene


def test_transactions_without_events_advance_the_place_and_keep_the_anchor(scene: Scene) -> None:
    scene.made.commit()
    scene.made.commit()
    last = scene.read(marker_at(0, None, 0)).markers[-1]
    assert last.order == place_after(7)
    assert last.anchor is not None
    assert last.anchor.begin == place_after(4)
    scene.log.prove(last)
    assert not scene.log.unproven


def test_a_rename_is_read_in_any_pieces(scene: Scene) -> None:
    start = scene.log.marker(5)
    scene.made.commit(event("Rename", srcPath="/a/1", destPath="/b/1", timestamp=1))
    scene.made.commit(created("/b/2"))
    whole, pieces = scene.read(start), scene.read(start, 1)
    assert pieces.updates == whole.updates
    assert pieces.pieces == 3
    assert [(one.shard, one.op) for one in whole.updates[:4]] == [
        ("log.a", "delete"),
        ("log.a", "delete_range"),
        ("log.b", "delete"),
        ("log.b", "upsert"),
    ]


def test_a_restored_name_node_that_passed_the_place_is_another_history(scene: Scene) -> None:
    marker = scene.log.marker(5)
    scene.made.lose(1)
    for number in range(5, 9):
        scene.made.commit(created(f"/other/{number}"))
    with pytest.raises(Diverged) as error:
        scene.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == ("5", "5")
    assert error.value.hint


def test_a_restored_name_node_is_found_where_only_transactions_without_events_were_lost(scene: Scene) -> None:
    scene.made.commit()
    scene.made.commit()
    marker = scene.read(marker_at(0, None, 0)).markers[-1]
    scene.made.lose(2)
    scene.made.commit(created("/a/another"))
    scene.made.commit()
    scene.made.commit(created("/a/later"))
    with pytest.raises(Diverged):
        scene.open(marker)


def test_a_restored_name_node_before_the_place_is_another_history(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = scene.log.marker(5)
    scene.made.lose(2)
    scene.log.stop()  # no second look
    with pytest.raises(Diverged, match="end at transaction 3"):
        scene.open(marker)


def test_an_idle_reader_finds_a_restored_name_node(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PROVE_S", 0.0)
    reader = scene.open(scene.log.marker(5))
    assert reader.read(1 << 20, 0.0) is None
    scene.made.lose(1)
    scene.made.commit(created("/other/5"))
    with pytest.raises(Diverged):
        reader.read(1 << 20, 1.0)


def test_a_reader_after_a_pause_finds_a_restored_name_node_that_has_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAUSE_S", 0.0)
    reader = scene.open(scene.log.marker(5))
    scene.made.lose(1)
    for number in range(5, 9):
        scene.made.commit(created(f"/other/{number}"))
    with pytest.raises(Diverged):
        reader.read(1 << 20, 0.0)


def test_a_log_that_went_back_is_opened_again(scene: Scene) -> None:
    reader = scene.open(scene.log.marker(5))
    scene.made.lose(2)
    with pytest.raises(SourceUnavailable):
        reader.read(1 << 20, 0.0)


def test_a_place_whose_proof_was_purged_is_reported(scene: Scene) -> None:
    marker = scene.log.marker(5)
    scene.made.commit(created("/a/6"))
    scene.made.begin = 6
    assert len(scene.read(marker).updates) == 1
    assert scene.log.unproven.code == "place-unproven"


@pytest.mark.parametrize("anchored", [True, False])
def test_a_purged_range_is_exact(scene: Scene, anchored: bool) -> None:
    marker = scene.log.marker(2) if anchored else marker_at(2, None, 0)
    scene.made.begin = 5
    with pytest.raises(PositionPurged) as error:
        scene.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == ("3", "4")


def test_a_range_that_is_purged_while_it_is_read_is_exact() -> None:
    scene = Scene(most=2)
    for number in range(1, 8):
        scene.made.commit(created(f"/a/{number}"))
    reader = scene.open(marker_at(0, None, 0))
    assert reader.read(1 << 20, 0.0) is not None
    scene.made.begin = 6
    with pytest.raises(PositionPurged) as error:
        while reader.read(1 << 20, 0.0) is not None:
            pass
    assert (error.value.first_missing, error.value.last_missing) == ("3", "5")


def test_a_time_that_goes_back_is_no_earlier_commit(scene: Scene) -> None:
    scene.made.commit(created("/a/6", at_ms=1))
    times = [one.committed_at_us for one in scene.read(marker_at(0, None, 0)).updates]
    assert times == sorted(times)


def test_an_idle_poll_asks_for_nothing_that_was_read(scene: Scene) -> None:
    reader = scene.open(scene.log.marker(5))
    scene.made.asked.clear()
    reader.read(1 << 20, 0.0)
    assert scene.made.asked == [6]
