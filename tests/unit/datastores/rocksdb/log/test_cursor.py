"""One file, steps of a cursor over it, and walks over its records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import zstandard
from google_crc32c import value as crc32c

from datastores.rocksdb.decode.write_batch import Encoder, Status
from datastores.rocksdb.log.cursor import CursorStep, WalCursor, WentBack
from datastores.rocksdb.log.transaction import Bytes, Outcome, Payload, PreparedBatch, RecordWalk
from datastores.rocksdb.log.wal_file import LARGE, FillResult, PayloadReader, WalFile
from tests.support.rocksdb_wal import BLOCK, DirectoryFiles, WalWriter, batch, delete, fragment, put, string
from wormhole.model.errors import DecodeError, SourceUnavailable, UnsupportedLog
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

# --- cursor: steps of a cursor: what each says, and where it stands afterwards ---


def cursor(
    folder: Path, file: int = 4, at: int = 0, reached: tuple[int, int] = (-1, 0), **options: object
) -> tuple[WalCursor, Encoder]:
    encoder = Encoder(1 << 20)
    files = DirectoryFiles(folder)
    files.reached = reached

    def resolve(family: int, wal: WalFile) -> None:
        encoder.add_family(family, 0, 0, 0)

    return WalCursor(files, encoder, resolve, file=file, at=at, **options), encoder  # type: ignore[arg-type]


def write(folder: Path, number: int, *records: bytes) -> list[tuple[int, int]]:
    writer = WalWriter()
    places = [writer.add(record) for record in records]
    (folder / f"{number:06d}.log").write_bytes(writer.data)
    return places


def test_it_is_behind_what_it_passed(tmp_path: Path) -> None:
    places = write(tmp_path, 4, batch(1, [put(b"a", b"1")]), batch(2, [put(b"b", b"2")]))
    c, encoder = cursor(tmp_path)
    assert c.step(1 << 18) == CursorStep.PROGRESS
    assert (c.file, c.at, c.begin, c.sequence) == (4, places[1][1], (4, places[1][0]), 2)
    assert c.log_bytes == places[1][1]
    assert not c.loaded
    marker = c.marker(1, "src", None, 7)
    assert (marker.delivered, marker.read_from, marker.committed_at_us) == ("2", marker.order, 7)
    assert c.step(1 << 18) == CursorStep.END
    assert encoder.take().tx_number.tolist() == [1, 2]
    c.close()


def test_one_by_one_it_passes_one(tmp_path: Path) -> None:
    places = write(tmp_path, 4, *(batch(i, [put(b"a", b"1")]) for i in range(1, 4)))
    c, _ = cursor(tmp_path, one_by_one=True)
    for _, end in places:
        assert c.step(1 << 18) == CursorStep.PROGRESS
        assert c.at == end


def test_silently_it_notes_what_is_prepared(tmp_path: Path) -> None:
    places = write(
        tmp_path,
        4,
        batch(1, [b"\x09", put(b"p", b"1"), b"\x0a" + string(b"t")], 1),
        batch(1, [put(b"a", b"1")]),
        batch(2, [b"\x0b" + string(b"t")], 0),
    )
    c, encoder = cursor(tmp_path, silent_until=(4, places[2][0]))
    encoder.expected = -1
    while c.silent or not encoder.updates:
        assert c.step(1 << 18) == CursorStep.PROGRESS
        if (c.file, c.at) == (4, places[2][0]):
            assert list(c.prepared) == [b"t"]
            assert encoder.updates == 0
    assert encoder.take().tx_number.tolist() == [2]
    assert not c.prepared


def test_a_place_inside_a_record_is_no_place(tmp_path: Path) -> None:
    places = write(tmp_path, 4, batch(1, [put(b"a", b"1" * 100)]), batch(2, [put(b"a", b"1")]))
    c, _ = cursor(tmp_path, silent_until=(4, places[0][0] + 20))
    with pytest.raises(DecodeError, match="no transaction's end"):
        for _ in range(5):
            c.step(1 << 18)


def test_a_gap_is_reported_once_and_leads_back_to_itself(tmp_path: Path) -> None:
    write(tmp_path, 4, batch(1, [put(b"a", b"1")]), batch(9, [put(b"b", b"2")]))
    c, encoder = cursor(tmp_path)
    assert c.step(1 << 18) == CursorStep.PROGRESS
    assert c.step(1 << 18) == CursorStep.GAP
    assert c.gap is not None
    assert (c.gap.first_missing, c.gap.last_missing) == ("2", "8")
    assert c.marker(1, "src", None, 0).delivered == "1"
    assert c.step(1 << 18) == CursorStep.PROGRESS
    assert encoder.expected == 10


def test_an_end_in_a_file_without_records_is_a_place_too(tmp_path: Path) -> None:
    write(tmp_path, 8)
    c, _ = cursor(tmp_path)  # its own file is gone
    assert c.step(1 << 18) == CursorStep.END
    assert (c.file, c.at) == (8, 0)


@pytest.mark.parametrize("entries", [[put(b"b", b"2")], []], ids=["a change", "none, after a recovery"])
def test_a_history_that_begins_with_a_file_is_named_by_it(tmp_path: Path, entries: list[bytes]) -> None:
    write(tmp_path, 4, *(batch(i, [put(b"a", b"1")]) for i in range(1, 4)))
    write(tmp_path, 8, batch(2, entries))
    c, _ = cursor(tmp_path)
    assert c.step(1 << 18) == CursorStep.PROGRESS
    with pytest.raises(WentBack, match=r"000008\.log, offset 0: sequence number 2 where 4 follows") as caught:
        c.step(1 << 18)
    assert caught.value.file == 8


def test_a_record_without_changes_that_follows_is_passed(tmp_path: Path) -> None:
    write(tmp_path, 4, *(batch(i, [put(b"a", b"1")]) for i in range(1, 4)))
    (_, end), *_ = write(tmp_path, 8, batch(4, []))
    c, _ = cursor(tmp_path)
    assert [c.step(1 << 18) for _ in range(3)] == [CursorStep.PROGRESS, CursorStep.PROGRESS, CursorStep.END]
    assert (c.file, c.at, c.marker(1, "src", None, 7).delivered) == (8, end, "3")


@pytest.mark.parametrize(("reached", "back"), [((4, 2), True), ((4, 1), False), ((8, 2), False), ((-1, 0), False)])
def test_ids_that_were_given_in_an_earlier_file_begin_another_history(
    tmp_path: Path, reached: tuple[int, int], back: bool
) -> None:
    """A crash took the end of WAL 4 after it was read, and the flow was set to the beginning."""
    write(tmp_path, 4, batch(1, [put(b"a", b"1")]))
    write(tmp_path, 8, batch(2, [put(b"b", b"2")]))
    c, _ = cursor(tmp_path, reached=reached)
    assert c.step(1 << 18) == CursorStep.PROGRESS
    if back:
        with pytest.raises(WentBack, match=r"000008\.log begins at sequence number 2, and WAL 4 had reached 2"):
            c.step(1 << 18)
    else:
        assert c.step(1 << 18) == CursorStep.PROGRESS


def test_a_number_that_falls_amid_a_file_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 4, batch(5, [put(b"a", b"1")]), batch(2, [put(b"b", b"2")]))
    c, _ = cursor(tmp_path)
    assert c.step(1 << 18) == CursorStep.PROGRESS
    with pytest.raises(DecodeError, match="has sequence number 2 where 6 follows"):
        c.step(1 << 18)


# --- transaction: walks over records: what a two-phase commit looks like, in one piece and in many ---


BEGIN = b"\x09"


def end(name: bytes) -> bytes:
    return b"\x0a" + string(name)


def commit(name: bytes, timestamp: bytes | None = None) -> bytes:
    return b"\x0b" + string(name) if timestamp is None else b"\x15" + string(timestamp) + string(name)


def rollback(name: bytes) -> bytes:
    return b"\x0c" + string(name)


class Dribble:
    """A payload that comes a few bytes at a time."""

    def __init__(self, data: bytes, step: int = 3) -> None:
        self._data, self._step = data, step

    def read(self, size: int) -> bytes:
        piece, self._data = self._data[: self._step], self._data[self._step :]
        return piece


class Log:
    """Records by offset, walked one after the other."""

    def __init__(self, dribble: bool = False) -> None:
        self.records: dict[int, bytes] = {}
        self.encoder = Encoder(1 << 20)
        self.prepared: dict[bytes, PreparedBatch] = {}
        self._dribble = dribble

    def payload(self, offset: int) -> Payload:
        return Dribble(self.records[offset]) if self._dribble else Bytes(self.records[offset])

    def walk(self, record: bytes) -> RecordWalk:
        offset = len(self.records)
        self.records[offset] = record
        return RecordWalk(
            self.encoder,
            self.payload(offset),
            (1, offset),
            self.prepared,
            lambda prepared: self.payload(prepared.place[1]),
            lambda family: self.encoder.add_family(family, 0, 8 if family == 6 else 0, 0),
        )

    def take(self, record: bytes) -> tuple[bytes, int]:
        walk = self.walk(record)
        assert walk.step(1 << 30) == Outcome.DONE
        if walk.index:
            self.encoder.end_transaction(0)
        return self.encoder.take().blob, walk.consumed


A = entry(encode_row(Op.UPSERT, (b"a",), after=(b"1",)))
B = entry(encode_row(Op.DELETE, (b"b",)))


@pytest.mark.parametrize("dribble", [False, True])
def test_prepare_commit_and_rollback(dribble: bool) -> None:
    log = Log(dribble)
    prepare = [BEGIN, put(b"a", b"1"), delete(b"b"), end(b"t")]
    assert log.take(batch(1, prepare, 2)) == (b"", 0)
    assert log.prepared[b"t"].entries == 2
    assert log.take(batch(1, [put(b"a", b"1")])) == (A, 1)
    assert log.take(batch(2, [commit(b"t")], 0)) == (A + B, 2)
    assert not log.prepared
    log.take(batch(4, prepare, 2))
    assert log.take(batch(4, [rollback(b"t")], 0)) == (b"", 0)
    assert log.take(batch(4, [rollback(b"unknown")], 0)) == (b"", 0)


@pytest.mark.parametrize("dribble", [False, True])
def test_group_commit_joins_everything_in_one_record(dribble: bool) -> None:
    log = Log(dribble)
    log.take(batch(1, [BEGIN, delete(b"b"), end(b"t")], 1))
    joined = [put(b"a", b"1"), commit(b"t"), b"\x03" + string(b"note"), BEGIN, delete(b"x"), end(b"u"), put(b"a", b"1")]
    assert log.take(batch(1, joined, 3)) == (A + B + A, 3)
    assert list(log.prepared) == [b"u"]


def test_commit_timestamps_replace_what_was_prepared() -> None:
    log = Log()
    log.take(batch(1, [BEGIN, put(b"key" + bytes(8), b"v", family=3), end(b"t")], 1))
    assert log.take(batch(1, [commit(b"t", b"12345678")], 0))[0] == entry(
        encode_row(Op.UPSERT, (b"key", b"12345678"), after=(b"v",))
    )
    assert log.encoder.commit_timestamp == b""


def test_a_walk_that_encodes_nothing_counts_the_same() -> None:
    log = Log()
    log.encoder.skipping = True
    log.take(batch(1, [BEGIN, put(b"a", b"1"), delete(b"b"), end(b"t")], 2))
    assert log.take(batch(1, [commit(b"t"), delete(b"z")], 1)) == (b"", 3)


def test_gaps_come_before_anything_changes() -> None:
    log = Log()
    log.take(batch(1, [BEGIN, put(b"a", b"1"), end(b"t")], 1))
    log.encoder.expected = 5
    for sequence, outcome in ((9, Outcome.GAP), (3, Outcome.BACK)):
        assert log.walk(batch(sequence, [commit(b"t")], 0)).step(1) == outcome
        assert log.walk(batch(sequence, [put(b"a", b"1")])).step(1) == outcome
        assert list(log.prepared) == [b"t"]
    assert log.encoder.updates == 0


def test_a_commit_of_nothing_known_is_reported_and_passed() -> None:
    log = Log()
    walk = log.walk(batch(1, [commit(b"lost"), put(b"a", b"1")], 1))
    assert walk.step(1 << 20) == Outcome.UNPREPARED
    assert walk.xid == b"lost"
    assert walk.step(1 << 20) == Outcome.DONE
    assert (walk.consumed, walk.index) == (1, 1)


@pytest.mark.parametrize(
    ("entries", "count", "text"),
    [
        ([BEGIN, put(b"a", b"1")], 1, "a prepare has no end"),
        ([end(b"t")], 0, "that did not begin"),
        ([BEGIN, BEGIN], 0, "inside a prepare"),
        ([BEGIN, commit(b"t"), end(b"t")], 0, "is inside a prepare"),
        ([put(b"a", b"1"), rollback(b"t")], 2, "claims 2 entries and has 1"),
        ([b"\x0b\x7fshort"], 0, "name of a transaction"),
        ([b"\x0b\xff\xff\xff\xff\xff\xff"], 0, "name of a transaction"),
        ([rollback(b"t"), b"\x7f"], 1, "kind 0x7f is not known"),
    ],
)
@pytest.mark.parametrize("dribble", [False, True])
def test_broken_records_say_what_is_wrong(entries: list[bytes], count: int, text: str, dribble: bool) -> None:
    with pytest.raises(DecodeError, match=text):
        Log(dribble).walk(batch(1, entries, count)).step(1 << 20)
    with pytest.raises(DecodeError, match="header"):
        Log(dribble).walk(b"short").step(1)


def test_databases_that_number_batches_are_refused() -> None:
    with pytest.raises(UnsupportedLog, match="seq_per_batch") as caught:
        Log().walk(batch(1, [b"\x13"], 0)).step(1)
    assert "WRITE_COMMITTED" in str(caught.value.hint)
    assert Status.PER_BATCH


# --- wal file: one file: what stands at a place, what the file's head says, and what lies behind a fault ---


def opened(tmp_path: Path, data: bytes, number: int = 5) -> WalFile:
    path = tmp_path / f"{number:06d}.log"
    path.write_bytes(data)
    return WalFile(path, number)


def test_a_file_that_cannot_be_opened_passes_by_itself(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="cannot be opened"):
        WalFile(tmp_path / "000001.log", 1)


def test_what_is_at_a_place(tmp_path: Path) -> None:
    writer = WalWriter()
    first, second = writer.add(b"a" * 100)
    writer.add(b"b" * 100)
    end = len(writer.data)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.fill(first) is FillResult.RECORDS
    assert wal.frames.count == 2
    assert wal.fill(second) is FillResult.RECORDS
    assert wal.payload_crc(0) == crc32c(b"b" * 100)
    assert wal.fill(end) is FillResult.END
    for tail, result in (
        (bytes(50), FillResult.END),
        (b"torn", FillResult.TORN),
        (fragment(5, b"x", 4), FillResult.END),
    ):
        wal = opened(tmp_path, bytes(writer.data) + tail)
        assert wal.fill(end) is result
        assert wal.fault[0] == end
    wal.close()
    wal.close()


@pytest.mark.parametrize("size", [BLOCK, 300_000, 1 << 20, LARGE - 200, LARGE + 200_000])
def test_records_up_to_the_limit_are_held_and_larger_ones_are_measured(tmp_path: Path, size: int) -> None:
    writer = WalWriter()
    writer.add(b"first")
    payload = bytes(range(256)) * (size // 256)
    begin, end = writer.add(payload)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.fill(begin) is (FillResult.LARGE if size > LARGE else FillResult.RECORDS)
    assert wal.measure(begin) == (end, crc32c(payload))
    assert b"".join(wal.payload(begin)) == payload
    torn = opened(tmp_path, bytes(writer.data[:-1]))
    assert torn.measure(begin) is None
    with pytest.raises(DecodeError, match="was whole and is no longer"):
        list(torn.payload(begin))


def test_the_head_counts_for_a_reader_that_begins_in_the_middle(tmp_path: Path) -> None:
    writer = WalWriter(5)
    writer.meta(9, struct.pack("<I", 7))
    writer.meta(131, bytes(24))
    writer.meta(254, b"of a later release")
    writer.meta(11, struct.pack("<IHIH", 1, 8, 7, 16))
    begin, _ = writer.add(zstandard.compress(batch(77, [put(b"a", b"1")])))
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.zstd
    assert wal.timestamps == {1: 8, 7: 16}
    assert wal.fill(begin) is FillResult.RECORDS
    assert wal.batch(0, 1) == batch(77, [put(b"a", b"1")])
    assert wal.first_sequence() == 77
    writer = WalWriter()
    writer.meta(10, b"odd")
    with pytest.raises(DecodeError, match="no multiple of 6"):
        opened(tmp_path, bytes(writer.data))


def test_the_first_number_of_files_of_all_sorts(tmp_path: Path) -> None:
    assert opened(tmp_path, b"").first_sequence() is None
    assert opened(tmp_path, bytes(BLOCK)).first_sequence() is None
    writer = WalWriter(5)
    writer.add(batch(9, [put(b"a", bytes(LARGE + 1000))]))
    assert opened(tmp_path, bytes(writer.data)).first_sequence() == 9
    assert opened(tmp_path, bytes(writer.data[:-1])).first_sequence() is None
    assert opened(tmp_path, bytes(writer.data), 6).first_sequence() is None


def test_later_records_are_found_in_the_block_and_behind_it(tmp_path: Path) -> None:
    writer = WalWriter()
    first = writer.add(b"a" * 50)[1]
    second = writer.add(b"b" * 50)[0]
    assert first == second
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.later_record(3) == second
    assert wal.later_record(second) is None
    writer.add(b"c" * 3 * BLOCK)
    wal = opened(tmp_path, bytes(writer.data))
    assert wal.later_record(200) == BLOCK
    assert opened(tmp_path, bytes(writer.data[:200]) + bytes(BLOCK)).later_record(200) is None


def test_payloads_are_read_in_pieces_of_any_size() -> None:
    data = bytes(range(256)) * 50
    stored = zstandard.compress(data)
    for size in (1, 7, 1000, 1 << 20):
        plain = PayloadReader(iter([data[:100], data[100:]]), False)
        assert b"".join(iter(lambda: plain.read(size), b"")) == data  # noqa: B023
        packed = PayloadReader(iter([stored[:50], stored[50:]]), True)
        assert b"".join(iter(lambda: packed.read(size), b"")) == data  # noqa: B023
    broken = PayloadReader(iter([b"no zstd frame"]), True)
    with pytest.raises(DecodeError, match="does not decompress"):
        broken.read(10)
