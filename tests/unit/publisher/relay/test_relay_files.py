"""Relay files: what is written can be read, where a marker is proven, and what another start finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.cursor import Cursor, Gone
from publisher.relay.files import NotAdjoiningError, RelayFiles
from publisher.relay.settings import RelayIdentity
from wormhole.model.errors import UsageError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import LOG_BYTES, Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read, read_log

IDENTITY = RelayIdentity("orders", "memory", "log", 1 << 20, "")


class Scene:
    """A log, and the relay files of it."""

    def __init__(self, folder: Path, *, file_bytes: int = 64 << 20, compress: bool = False) -> None:
        self.folder = folder
        self.file_bytes = file_bytes
        self.compress = compress
        self.log = MemorySource()
        self.start = self.log.latest()
        self.files = self.opened()

    def opened(self, *, hold: bool = False, identity: RelayIdentity = IDENTITY) -> RelayFiles:
        files = RelayFiles(self.folder, identity, hold=hold, compress=self.compress, file_bytes=self.file_bytes)
        files.open()
        return files

    def reopen(self) -> None:
        """Another process, after one that was killed or ended."""
        self.files.close()
        self.files = self.opened()

    def commit(self, rows: int = 2, size: int = 20) -> Datamarker:
        """One transaction."""
        number = self.log.latest().order.offset
        return self.log.commit([(Op.INSERT, "t", f"{number}.{i}", {"v": "x" * size}) for i in range(rows)])

    def segments(self, marker: Datamarker, max_bytes: int = 1 << 20) -> Iterator[Segment]:
        """The log behind ``marker``."""
        with closing(self.log.open(marker)) as reader:
            while (segment := reader.read(max_bytes, 0)) is not None:
                yield segment

    def record(self, marker: Datamarker, max_bytes: int = 1 << 20) -> None:
        """Write the log behind ``marker``."""
        self.files.append(*self.segments(marker, max_bytes))

    def ids(self, marker: Datamarker) -> list[str]:
        """Ids of the updates behind ``marker``, from the relay."""
        cursor = self.files.find(marker)
        assert cursor is not None, f"{marker} is not found"
        return read_on(cursor)

    def expected(self, marker: Datamarker) -> list[str]:
        """The same, from the log."""
        return read_log(self.log, marker).ids()


def read_on(cursor: Cursor) -> list[str]:
    """Ids of the updates up to the end of what is there."""
    read = Read()
    with closing(cursor):
        while (segment := cursor.next()) is not None:
            read.add(segment)
    return read.ids()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "relay")
    yield scene
    scene.files.close()


def test_what_is_written_is_read_from_every_transactions_end_on(scene: Scene) -> None:
    markers = [scene.start, *(scene.commit() for _ in range(6))]
    scene.files.begin(scene.start)
    scene.record(markers[0])
    for marker in markers:
        assert scene.ids(marker) == scene.expected(marker)
    assert scene.ids(markers[-1]) == []


def test_small_segments_are_written_together_and_their_markers_are_found(scene: Scene) -> None:
    markers = [scene.start]
    segments: list[Segment] = []
    for _ in range(5):
        segments += scene.segments(markers[-1]) if len(markers) > 1 and not segments else ()
        markers.append(scene.commit())
        segments += scene.segments(markers[-2])
    scene.files.begin(scene.start)
    scene.files.append(*segments)
    assert len(list(scene.files.segments_of_oldest())) == 1
    for marker in markers:
        assert scene.ids(marker) == scene.expected(marker)


def test_a_large_transaction_is_there_when_its_last_piece_is(scene: Scene) -> None:
    scene.files.begin(scene.start)
    before = scene.commit()
    scene.record(scene.start)
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


def test_a_piece_may_hold_whole_transactions_too(scene: Scene) -> None:
    before = scene.commit()
    scene.commit(rows=50)
    scene.files.begin(scene.start)
    scene.record(scene.start, 300)
    assert scene.ids(before) == scene.expected(before)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_an_unfinished_transaction_is_forgotten(scene: Scene) -> None:
    scene.files.begin(scene.start)
    before = scene.commit()
    scene.record(scene.start)
    scene.commit(rows=50)
    pieces = list(scene.segments(before, 300))
    size = scene.files.size
    scene.files.append(*pieces[:-2])
    assert scene.files.size > size
    scene.files.abandon()
    assert scene.files.stretches[0].end == before
    with pytest.raises(NotAdjoiningError):
        scene.files.append(replace(pieces[-1], begin=LogPosition(1, 1, 1)))
    scene.record(before)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_a_marker_of_another_log_is_not_found(scene: Scene) -> None:
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
    scene = Scene(tmp_path, file_bytes=1000)
    markers = [scene.start]
    scene.files.begin(scene.start)
    for _ in range(8):
        markers.append(scene.commit(size=300))
        scene.record(markers[-2])
    assert len(scene.files.files) > 2
    assert len(scene.files.stretches) == 1
    for _ in range(2):
        for marker in markers:
            assert scene.ids(marker) == scene.expected(marker)
        scene.reopen()
    markers.append(scene.commit())
    scene.record(markers[-2])
    assert scene.ids(scene.start) == scene.expected(scene.start)
    scene.files.close()


def test_a_cursor_goes_on_when_more_is_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path, file_bytes=600)
    scene.files.begin(scene.start)
    cursor = scene.files.find(scene.start)
    assert cursor is not None
    read = Read()
    marker = scene.start
    for _ in range(5):
        before, marker = marker, scene.commit(size=100)
        scene.record(before)
        while (segment := cursor.next()) is not None:
            read.add(segment)
        assert cursor.marker == marker
    assert read.ids() == scene.expected(scene.start)
    scene.files.close()


def test_a_hole_begins_a_stretch(scene: Scene) -> None:
    first = scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    second = scene.commit()
    scene.files.begin(second)
    scene.commit()
    scene.record(second)
    assert [(s.begin, s.end) for s in scene.files.stretches] == [(scene.start, first), (second, scene.log.latest())]
    assert scene.ids(first) == []
    assert scene.ids(second) == scene.expected(second)
    with pytest.raises(ValueError, match="before the end"):
        scene.files.begin(first)


def test_a_segment_that_does_not_follow_is_refused(scene: Scene) -> None:
    with pytest.raises(NotAdjoiningError):
        scene.files.append(Segment(scene.start.order, scene.start.order, {}, scene.start, 0))
    first = scene.commit()
    scene.commit()
    scene.files.begin(scene.start)
    with pytest.raises(NotAdjoiningError):
        scene.record(first)


def test_the_oldest_file_goes_and_its_readers_are_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path, file_bytes=600)
    scene.files.begin(scene.start)
    marker = scene.start
    for _ in range(4):
        before, marker = marker, scene.commit(size=300)
        scene.record(before)
    cursor = scene.files.find(scene.start)
    assert cursor is not None
    oldest = scene.files.oldest_file()
    assert oldest is not None
    assert scene.files.drop_oldest()
    assert not oldest.path.exists()
    with pytest.raises(Gone):
        cursor.next()
    assert scene.files.find(scene.start) is None
    assert scene.ids(oldest.end) == scene.expected(oldest.end)
    while scene.files.drop_oldest():
        pass
    scene.commit()
    scene.record(marker)
    assert scene.ids(marker) == scene.expected(marker)
    scene.files.close()


def test_two_publishers_do_not_write_one_folder(scene: Scene) -> None:
    with pytest.raises(UsageError, match="in use by another process"):
        scene.opened()


def test_files_of_another_identity(scene: Scene) -> None:
    scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    scene.files.close()
    other = replace(IDENTITY, sharding="hash 4")
    with pytest.raises(UsageError, match="sharding 'log' instead of 'hash 4'"):
        scene.opened(hold=True, identity=other)
    files = scene.opened(identity=other)
    assert files.stretches == ()
    assert files.size == 0
    files.close()


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
    recorded: str, now: str, read: bool, scene: Scene
) -> None:
    scene.files.close()
    scene.files = scene.opened(hold=True, identity=replace(IDENTITY, tables=recorded))
    marker = scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    scene.files.close()
    if not read:
        with pytest.raises(UsageError, match="written with other settings"):
            scene.opened(hold=True, identity=replace(IDENTITY, tables=now))
        return
    scene.files = scene.opened(hold=True, identity=replace(IDENTITY, tables=now))
    scene.commit()
    scene.record(marker)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_everything_goes(scene: Scene) -> None:
    scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    cursor = scene.files.find(scene.start)
    assert cursor is not None
    scene.files.clear()
    with pytest.raises(Gone):
        cursor.next()
    assert scene.files.stretches == ()
    assert [path.suffix for path in scene.folder.iterdir()] == [".lock"]
    scene.files.begin(scene.start)
    scene.record(scene.start)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_a_torn_tail_is_dropped(scene: Scene) -> None:
    first = scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    scene.commit()
    scene.record(first)
    path = next(scene.folder.glob("*.wrf"))
    data = path.read_bytes()
    scene.files.close()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        files = scene.opened()
        assert [stretch.end for stretch in files.stretches] in ([], [first], [scene.log.latest()])
        files.close()


def test_damage_is_not_served(scene: Scene) -> None:
    scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    scene.files.close()
    path = next(scene.folder.glob("*.wrf"))
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :])
        files = scene.opened()
        cursor = files.find(scene.start)
        if cursor is not None:
            try:
                assert read_on(cursor) in (scene.expected(scene.start), [])
            except Gone:
                assert files.stretches == ()
        files.close()
        path.write_bytes(data)


def test_a_marker_before_a_gap_is_told_of_it_and_one_behind_is_not(scene: Scene) -> None:
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
            cursor = scene.files.find(start)
            assert cursor is not None
            with closing(cursor):
                assert [one.gap is not None for one in iter(cursor.next, None)] == [True] * told
        if not same_place:
            between = LogPosition(1, place.file, 2)
            assert scene.files.find(replace(behind, order=between)) is None


def test_a_marker_where_rows_changed_without_a_trace_is_told_of_it(scene: Scene) -> None:
    before = scene.log.latest()
    marker = scene.commit()
    scene.files.begin(before)
    scene.record(before)
    replaced = {"shop.t": marker.order}
    scene.files.append(Segment(marker.order, marker.order, {}, marker, 0, replaced=replaced))
    cursor = scene.files.find(marker)
    assert cursor is not None
    with closing(cursor):
        assert [one.replaced for one in iter(cursor.next, None)] == [replaced]


def test_places_without_transactions_are_proven_by_what_is_before(scene: Scene) -> None:
    first = scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
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
    scene = Scene(tmp_path, compress=True)
    plain = Scene(tmp_path / "plain")
    for one in (scene, plain):
        one.files.begin(one.start)
        one.commit(rows=50)
        one.record(one.start)
    assert scene.files.size < plain.files.size / 2
    assert scene.files.log_bytes == plain.files.log_bytes
    for one in (scene, plain):
        one.reopen()
        assert one.ids(one.start) == one.expected(one.start)
        one.files.close()


def test_an_index_that_is_damaged_later(scene: Scene) -> None:
    marker = scene.commit()
    scene.files.begin(scene.start)
    scene.record(scene.start)
    scene.reopen()
    path = next(scene.folder.glob("*.wrf"))
    path.write_bytes(path.read_bytes()[:-1])
    assert scene.files.find(marker) is None
    assert scene.files.stretches == ()


def test_what_is_no_relay_file_is_left_alone(scene: Scene) -> None:
    scene.files.close()
    for name in ("relay-1.wrf", "notes", "lost-1.keys"):
        (scene.folder / name).write_bytes(b"x")
    (scene.folder / "relay-00000000000000000009.wrf").write_bytes(b"torn")
    scene.files = scene.opened()
    assert sorted(path.name for path in scene.folder.iterdir()) == ["lost-1.keys", "notes", "relay-1.wrf", "relay.lock"]
    assert list(scene.files.segments_of_oldest()) == []
    assert not scene.files.drop_oldest()
