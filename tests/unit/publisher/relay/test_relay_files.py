"""Relay files: what is written can be read, where a marker is proven, and what another start finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from publisher.relay.cursor import Gone
from publisher.relay.files import NotAdjoiningError
from tests.support.present import present
from tests.support.relay_scene import FilesScene, read_on
from tests.support.relayed_harness import IDENTITY
from wormhole.model.errors import UsageError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import LOG_BYTES, Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.testing.reading import Read


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[FilesScene]:
    scene = FilesScene(tmp_path / "relay")
    yield scene
    scene.files.close()


def test_small_segments_are_written_together_and_their_markers_are_found(scene: FilesScene) -> None:
    markers, segments = [scene.start], list[Segment]()
    for _ in range(5):
        markers.append(scene.commit())
        segments += scene.segments(markers[-2])
    scene.files.begin(scene.start)
    scene.files.append(*segments)
    assert len(list(scene.files.segments_of_oldest())) == 1
    for marker in markers:
        assert scene.ids(marker) == scene.expected(marker)


def test_a_large_transaction_is_there_when_its_last_piece_is(scene: FilesScene) -> None:
    before = scene.begin()
    scene.commit(rows=50)
    pieces = list(scene.segments(before, 300))
    assert pieces[-2].marker is None
    scene.files.append(*pieces[:-1])
    assert scene.files.stretches[0].end == before
    assert len(scene.ids(before)) == 0
    assert scene.files.unfinished
    scene.files.append(pieces[-1])
    assert scene.ids(scene.start) == scene.expected(scene.start)
    assert scene.ids(before) == scene.expected(before)


def test_a_marker_of_another_log_is_not_found(scene: FilesScene) -> None:
    markers = [scene.commit() for _ in range(3)]
    scene.files.begin(scene.start)
    scene.record(scene.start)
    for marker in markers:
        assert marker.anchor is not None
        other = replace(marker, anchor=replace(marker.anchor, id="mem:99"))
        assert scene.files.find(other) is None
        order = LogPosition(2, marker.order.file, marker.order.offset)
        assert scene.files.find(replace(marker, order=order)) is None
    last = markers[-1]
    assert last.anchor is not None
    assert scene.files.find(replace(last, anchor=replace(last.anchor, checksum=1))) is None
    ahead = LogPosition(1, last.order.file, last.order.offset + 100)
    assert scene.files.find(replace(last, order=ahead)) is None


def test_files_are_completed_and_read_on(tmp_path: Path) -> None:
    scene = FilesScene(tmp_path, file_bytes=1000)
    markers = [scene.start]
    scene.files.begin(scene.start)
    markers += [scene.recorded(size=300) for _ in range(8)]
    assert len(scene.files.files) > 2
    assert len(scene.files.stretches) == 1
    for _ in range(2):
        for marker in markers:
            assert scene.ids(marker) == scene.expected(marker)
        scene.reopen()
    markers.append(scene.recorded())
    assert scene.ids(scene.start) == scene.expected(scene.start)
    scene.files.close()


def test_a_cursor_goes_on_when_more_is_written(tmp_path: Path) -> None:
    scene = FilesScene(tmp_path, file_bytes=600)
    scene.files.begin(scene.start)
    cursor = scene.cursor(scene.start)
    read = Read()
    for _ in range(5):
        marker = scene.recorded(size=100)
        while (segment := cursor.next()) is not None:
            read.add(segment)
        assert cursor.marker == marker
    assert read.ids() == scene.expected(scene.start)
    scene.files.close()


def test_a_hole_begins_a_stretch(scene: FilesScene) -> None:
    first = scene.begin()
    second = scene.commit()
    scene.files.begin(second)
    scene.recorded()
    assert [(s.begin, s.end) for s in scene.files.stretches] == [(scene.start, first), (second, scene.log.latest())]
    assert scene.ids(first) == []
    assert scene.ids(second) == scene.expected(second)
    with pytest.raises(ValueError, match="before the end"):
        scene.files.begin(first)


def test_a_segment_that_does_not_follow_is_refused(scene: FilesScene) -> None:
    with pytest.raises(NotAdjoiningError):
        scene.files.append(Segment(scene.start.order, scene.start.order, {}, scene.start, 0))
    first = scene.commit()
    scene.commit()
    scene.files.begin(scene.start)
    with pytest.raises(NotAdjoiningError):
        scene.record(first)


def test_the_oldest_file_goes_and_its_readers_are_told(tmp_path: Path) -> None:
    scene = FilesScene(tmp_path, file_bytes=600)
    scene.files.begin(scene.start)
    for _ in range(4):
        marker = scene.recorded(size=300)
    cursor = scene.cursor(scene.start)
    oldest = present(scene.files.oldest_file())
    assert scene.files.drop_oldest()
    assert not oldest.path.exists()
    with pytest.raises(Gone):
        cursor.next()
    assert scene.files.find(scene.start) is None
    assert scene.ids(oldest.end) == scene.expected(oldest.end)
    while scene.files.drop_oldest():
        pass
    scene.recorded()
    assert scene.ids(marker) == scene.expected(marker)
    scene.files.close()


def test_two_publishers_do_not_write_one_folder(scene: FilesScene) -> None:
    with pytest.raises(UsageError, match="in use by another process"):
        scene.opened()


def test_files_of_another_identity(scene: FilesScene) -> None:
    scene.begin()
    scene.hold = True
    other = replace(IDENTITY, sharding="hash 4")
    with pytest.raises(UsageError, match="sharding 'log' instead of 'hash 4'"):
        scene.reopen(other)
    scene.hold = False
    scene.reopen(other)
    assert (scene.files.stretches, scene.files.size) == ((), 0)


@pytest.mark.parametrize(
    ("recorded", "now", "read"),
    [
        ("", "skip_tables = a.x", True),
        ("skip_tables = a.x", "skip_tables = a.x, a.y", True),
        ("history_tables = a.h", "skip_tables = a.x; history_tables = a.h", True),
        ("skip_tables = a.x, a.y", "skip_tables = a.y", False),
        ("skip_tables = a.x", "", False),
        ("", "history_tables = a.h", False),
        ("history_tables = a.h", "skip_tables = a.x", False),
    ],
)
def test_what_was_recorded_before_a_table_was_skipped_is_read(
    recorded: str, now: str, read: bool, scene: FilesScene
) -> None:
    scene.hold = True
    scene.reopen(replace(IDENTITY, tables=recorded))
    scene.begin()
    with nullcontext() if read else pytest.raises(UsageError, match="written with other settings"):
        scene.reopen(replace(IDENTITY, tables=now))
        scene.recorded()
        assert scene.ids(scene.start) == scene.expected(scene.start)


def test_everything_goes(scene: FilesScene) -> None:
    scene.begin()
    cursor = scene.cursor(scene.start)
    scene.files.clear()
    with pytest.raises(Gone):
        cursor.next()
    assert scene.files.stretches == ()
    assert [path.suffix for path in scene.folder.iterdir()] == [".lock"]
    scene.files.begin(scene.start)
    scene.record(scene.start)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_damage_is_not_served(scene: FilesScene) -> None:
    scene.begin()
    scene.files.close()
    path = next(scene.folder.glob("*.wrf"))
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :])
        scene.files = scene.opened()
        if (cursor := scene.files.find(scene.start)) is not None:
            try:
                assert read_on(cursor) in (scene.expected(scene.start), [])
            except Gone:
                assert scene.ends() == []
        scene.files.close()
        path.write_bytes(data)


def test_a_marker_before_a_gap_is_told_of_it_and_one_behind_is_not(scene: FilesScene) -> None:
    for same_place in (True, False):
        scene.files.clear()
        before = scene.log.latest()
        marker = scene.commit()
        scene.files.begin(before)
        scene.record(before)
        place = marker.order if same_place else LogPosition(1, marker.order.file + 1, 4)
        behind = Datamarker(place, "9", place, marker.anchor)
        scene.files.append(Segment(place, place, {}, behind, 0, gap=LogGap(LossKind.PURGED, "8", "9", "gone")))
        for start, told in ((marker, True), (behind, same_place)):
            with closing(scene.cursor(start)) as cursor:
                assert [one.gap is not None for one in iter(cursor.next, None)] == [True] * told
        if not same_place:
            between = LogPosition(1, place.file, 2)
            assert scene.files.find(replace(behind, order=between)) is None


def test_a_marker_where_rows_changed_without_a_trace_is_told_of_it(scene: FilesScene) -> None:
    before = scene.log.latest()
    marker = scene.commit()
    scene.files.begin(before)
    scene.record(before)
    replaced = {"shop.t": marker.order}
    scene.files.append(Segment(marker.order, marker.order, {}, marker, 0, replaced=replaced))
    with closing(scene.cursor(marker)) as cursor:
        assert [one.replaced for one in iter(cursor.next, None)] == [replaced]


def test_places_without_transactions_are_proven_by_what_is_before(scene: FilesScene) -> None:
    first = scene.begin()
    assert first.anchor is not None

    def at(offset: int, anchor: Anchor) -> Datamarker:
        order = LogPosition(1, first.order.file, first.order.offset + offset)
        return replace(first, order=order, anchor=anchor)

    log_bytes = Anchor(f"{LOG_BYTES}mem:1:{first.order.offset + 50}", 5, first.order)
    scene.files.append(Segment(first.order, at(100, log_bytes).order, {}, at(100, log_bytes), 100))
    for marker in (at(30, first.anchor), at(70, log_bytes), at(100, log_bytes), at(100, first.anchor)):
        assert scene.ids(marker) == []
    other = replace(first.anchor, id="mem:9")
    assert scene.files.find(at(30, other)) is None
    assert scene.files.find(replace(at(30, first.anchor), anchor=None)) is None, "nothing shows that it is an end"
    before = Anchor(f"{LOG_BYTES}mem:1:10", 5, scene.start.order)
    assert scene.files.find(replace(first, anchor=before)) is None, "a transaction is recorded behind these bytes"


def test_compressed_files_are_read(tmp_path: Path) -> None:
    scene = FilesScene(tmp_path, compress=True)
    plain = FilesScene(tmp_path / "plain")
    for one in (scene, plain):
        one.begin(rows=50)
    assert scene.files.size < plain.files.size / 2
    assert scene.files.log_bytes == plain.files.log_bytes
    for one in (scene, plain):
        one.reopen()
        assert one.ids(one.start) == one.expected(one.start)
        one.files.close()


def test_an_index_that_is_damaged_later(scene: FilesScene) -> None:
    marker = scene.begin()
    scene.reopen()
    path = next(scene.folder.glob("*.wrf"))
    path.write_bytes(path.read_bytes()[:-1])
    assert scene.files.find(marker) is None
    assert scene.files.stretches == ()


def test_what_is_no_relay_file_is_left_alone(scene: FilesScene) -> None:
    scene.files.close()
    for name in ("relay-1.wrf", "notes", "lost-1.keys"):
        (scene.folder / name).write_bytes(b"x")
    (scene.folder / "relay-00000000000000000009.wrf").write_bytes(b"torn")
    scene.files = scene.opened()
    assert sorted(path.name for path in scene.folder.iterdir()) == ["lost-1.keys", "notes", "relay-1.wrf", "relay.lock"]
    assert list(scene.files.segments_of_oldest()) == []
    assert not scene.files.drop_oldest()
