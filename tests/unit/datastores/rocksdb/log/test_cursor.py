"""Steps of a cursor: what each says, and where it stands afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.decode.write_batch import Encoder
from datastores.rocksdb.log.cursor import CursorStep, WalCursor, WentBack
from datastores.rocksdb.log.wal_file import WalFile
from tests.support.rocksdb_wal import DirectoryFiles, WalWriter, batch, put, string
from wormhole.model.errors import DecodeError


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
