"""Framing: every kind of fragment, every fault, in both forms."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.hot import hot_module
from tests.support.rocksdb_wal import BLOCK, WalWriter, fragment

log_format = hot_module("datastores.rocksdb.decode.log_format")


def records(module: ModuleType, data: bytes, number: int = 5, base: int = 0) -> tuple[list[bytes], int, int]:
    """Whole records, and where and why it stopped."""
    frames = module.Frames()
    at, status = module.frame(data, base, 0, number, frames, False, False)
    found: list[bytes] = []
    for i in range(frames.count):
        piece = data[frames.starts[i] : frames.ends[i]]
        if frames.kinds[i] in {module.FULL, module.FIRST}:
            found.append(piece)
        else:
            found[-1] += piece
    return found, at, status


@pytest.mark.parametrize("log_number", [None, 5])
def test_records_of_every_size_come_back(log_format: ModuleType, log_number: int | None) -> None:
    writer = WalWriter(log_number)
    payloads = [
        bytes([i % 251]) * size for i, size in enumerate((1, 100, 32_000, 700, 60, 100_000, 32_768, 5, 32_757, 9))
    ]
    for payload in payloads:
        writer.add(payload)
    found, at, status = records(log_format, bytes(writer.data))
    assert found == payloads
    assert (at, status) == (len(writer.data), log_format.MORE)


@pytest.mark.parametrize("log_number", [None, 5])
def test_every_rest_of_a_block_is_filled_as_the_format_requires(log_format: ModuleType, log_number: int | None) -> None:
    for rest in range(30):
        writer = WalWriter(log_number)
        writer.add(b"x" * (BLOCK - writer.header - rest))
        writer.add(b"second record")
        found, _, status = records(log_format, bytes(writer.data))
        assert [len(r) for r in found] == [BLOCK - writer.header - rest, 13], rest
        assert status == log_format.MORE


def test_every_cut_gives_the_whole_records_before_it(log_format: ModuleType) -> None:
    writer = WalWriter()
    ends = [writer.add(bytes([i]) * 50)[1] for i in range(6)]
    data = bytes(writer.data)
    for cut in range(len(data) + 1):
        found, at, status = records(log_format, data[:cut])
        assert len(found) == sum(end <= cut for end in ends)
        assert at == max([0, *(end for end in ends if end <= cut)])
        assert status == log_format.MORE


def test_an_incomplete_record_is_not_handed_out(log_format: ModuleType) -> None:
    writer = WalWriter()
    begin, _ = writer.add(b"first")
    begin, _ = writer.add(b"y" * 80_000)
    data = bytes(writer.data[:-1])
    frames = log_format.Frames()
    assert log_format.frame(data, 0, 0, 5, frames, False, False) == (begin, log_format.MORE)
    assert frames.count == 1
    assert (frames.record_at, frames.fault_at) == (begin, 2 * BLOCK)
    # In pieces it is.
    at, status = log_format.frame(data, 0, begin, 5, frames, False, True)
    assert (frames.count, at, status) == (2, 2 * BLOCK, log_format.MORE)
    at, status = log_format.frame(bytes(writer.data[at:]), at, 0, 5, frames, True, True)
    assert (frames.count, status) == (1, log_format.ROOM)


def test_faults_have_names(log_format: ModuleType) -> None:
    good = fragment(1, b"good")
    m = log_format
    flipped = bytearray(fragment(1, b"damaged"))
    flipped[9] ^= 1
    too_long = bytearray(fragment(1, b"x"))
    too_long[4:6] = b"\xff\xff"
    cases = {
        m.BAD_CHECKSUM: bytes(flipped),
        m.BAD_LENGTH: bytes(too_long),
        m.ZERO: bytes(100),
        m.STALE: fragment(5, b"of an older log", 4),
        m.BAD_ORDER: fragment(3, b"a middle alone"),
        m.UNKNOWN_KIND: fragment(12, b"what"),
        m.META: fragment(9, b"\x07\0\0\0"),
    }
    for status, data in cases.items():
        assert records(m, good + data + good) == ([b"good"], len(good), status), status
    for kind in (0, *range(12, m.IGNORABLE)):
        for log_number in (None, 5) if kind & 1 else (None,):
            data = fragment(kind, b"what", log_number)
            assert records(m, good + data + good) == ([b"good"], len(good), m.UNKNOWN_KIND), kind
    broken_off = fragment(2, b"first") + good
    assert records(m, broken_off)[2] == m.BAD_ORDER
    assert records(m, fragment(4, b"last alone"))[2] == m.BAD_ORDER
    assert records(m, fragment(2, b"first") + fragment(9, b"\x07\0\0\0"))[2] == m.BAD_ORDER


def test_every_record_without_data_can_be_passed_over(log_format: ModuleType) -> None:
    good = fragment(1, b"good")
    for kind in (10, 11, *range(log_format.IGNORABLE, 256)):
        for log_number in {11: (5,), 131: (5,)}.get(kind, (None, 5) if kind > 131 and kind & 1 else (None,)):
            data = fragment(kind, b"what", log_number)
            found, at, status = records(log_format, good + data + good)
            assert (found, at, status) == ([b"good"], len(good), log_format.META), kind
            meta = log_format.meta_at(good + data + good, at)
            assert (meta.kind, meta.payload, meta.next_at) == (kind, b"what", len(good + data)), kind
            for cut in range(1, len(data)):  # it is still being written
                assert records(log_format, (good + data)[:-cut])[2] in {log_format.MORE, log_format.BAD_CHECKSUM}
        if kind & 1:  # the log number counts here too
            assert records(log_format, fragment(kind, b"what", 4))[2] == log_format.STALE, kind


@pytest.mark.parametrize("rest", [12, 20, 28, 29])
def test_a_record_without_data_that_did_not_fit_into_its_block_leaves_zeros(log_format: ModuleType, rest: int) -> None:
    sizes = fragment(11, bytes(18), 5)
    block = fragment(5, bytes(BLOCK - 11 - rest), 5) + bytes(rest)
    at, status = records(log_format, block + sizes + fragment(5, b"next", 5))[1:]
    assert (at, status) == ((BLOCK, log_format.META) if rest < len(sizes) else (BLOCK - rest, log_format.ZERO))
    # Any other record would have begun there: a hole.
    assert records(log_format, block + fragment(5, b"next", 5))[2] == log_format.ZERO
    assert records(log_format, block + sizes[:20])[2] == log_format.ZERO


def test_an_empty_first_fragment_of_an_old_writer_is_passed_over(log_format: ModuleType) -> None:
    data = fragment(1, b"x" * (BLOCK - 14)) + fragment(2, b"") + fragment(1, b"again")
    assert records(log_format, data)[0][1:] == [b"again"]


def test_only_the_low_half_of_the_log_number_counts(log_format: ModuleType) -> None:
    data = fragment(5, b"record", 7)
    assert records(log_format, data, number=(1 << 32) + 7)[0] == [b"record"]
    assert records(log_format, data, number=8)[2] == log_format.STALE


def test_frames_that_are_full_say_so(log_format: ModuleType) -> None:
    data = fragment(1, b"r") * 5
    frames = log_format.Frames(3)
    assert log_format.frame(data, 0, 0, 5, frames, False, False) == (24, log_format.ROOM)
    assert frames.count == 3


@pytest.mark.parametrize(("base", "at", "number"), [(1 << 56, 0, 0), (0, 5, 0)])
def test_numbers_out_of_range_are_refused(log_format: ModuleType, base: int, at: int, number: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        log_format.frame(b"abc", base, at, number, log_format.Frames(), False, False)


def test_valid_at_and_meta_at(log_format: ModuleType) -> None:
    data = b"zz" + fragment(5, b"record", 7) + fragment(9, b"\x07\0\0\0")
    assert [i for i in range(len(data)) if log_format.valid_at(data, 0, i, 7)] == [2, 19]
    assert not log_format.valid_at(data, 0, 2, 8)
    assert not log_format.valid_at(data, BLOCK - 5, 2, 7)
    meta = log_format.meta_at(data, 19)
    assert (meta.kind, meta.payload, meta.next_at) == (9, b"\x07\0\0\0", len(data))
