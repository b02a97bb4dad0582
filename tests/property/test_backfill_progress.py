"""Progress of a backfill survives its bytes, damaged bytes mean that everything is needed, and numbers keep the order
of the keys."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import MOST_BYTES, BackfillRequest, FlowBackfill
from tests.support.seed import examples
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import ChunkRange

_REQUEST = BackfillRequest(3)
_NUMBERS = [START, *(i << 32 for i in range(1, 12)), END]


def _list() -> Boundaries:
    return Boundaries(5, "", {number: b"%d" % number for number in _NUMBERS[1:-1]})


def _chunk(begin: int, end: int, again: tuple[bytes, ...], alone: tuple[bytes, ...] = ()) -> ChunkRange:
    return ChunkRange(
        "t", Schema("t", (), ()), None, None, begin, end, LogPosition(1, 1, 0), again, again=again, alone=alone
    )


_keys = st.binary(max_size=3)
_chunks = st.lists(
    st.one_of(
        st.builds(
            lambda i, again: _chunk(_NUMBERS[i], _NUMBERS[i + 1], tuple(again)),
            st.integers(0, len(_NUMBERS) - 2),
            st.lists(_keys, max_size=3, unique=True),
        ),
        st.builds(
            lambda alone, again: _chunk(0, 0, tuple(sorted(set(again) & set(alone))), tuple(alone)),
            st.lists(_keys, min_size=1, max_size=3, unique=True),
            st.lists(_keys, max_size=3),
        ),
    ),
    max_size=20,
)


@examples(100)
@given(_chunks)
def test_what_was_taken_survives(chunks: list[ChunkRange]) -> None:
    progress = FlowBackfill(_REQUEST, "f")
    progress.offer([("t", _list())])
    needed = set(range(len(_NUMBERS) - 1))
    for chunk in chunks:
        rows = len(chunk.left_out)
        done = progress.finishes(chunk, rows)
        progress.took(chunk, rows)
        if not chunk.alone:
            needed.discard(_NUMBERS.index(chunk.begin))
        assert bool(done) <= progress.finished
        again = FlowBackfill.resume(_REQUEST, progress.to_bytes(), "f")
        again.offer([("t", _list())])
        assert again.ranges("t") == progress.ranges("t")
        assert list(again.again("t")) == list(progress.again("t"))
        assert (again.rows, again.finished) == (progress.rows, progress.finished)
    ranges = progress.ranges("t")
    for i in range(len(_NUMBERS) - 1):
        assert (i in needed) == any(low <= _NUMBERS[i] and _NUMBERS[i + 1] <= high for low, high in ranges)


@examples(100)
@given(st.binary(max_size=200), st.integers(0, 1 << 16), st.integers(0, 255))
def test_damaged_bytes_mean_that_everything_is_needed(noise: bytes, at: int, flip: int) -> None:
    progress = FlowBackfill(_REQUEST, "f")
    progress.offer([("t", _list())])
    progress.took(_chunk(START, 1 << 32, (b"a",)), 1)
    data = bytearray(progress.to_bytes())
    data[at % len(data)] ^= flip
    for damaged in (noise, bytes(data), bytes(data[: at % len(data)])):
        again = FlowBackfill.resume(_REQUEST, damaged, "f")
        again.offer([("t", _list())])
        whole = damaged == progress.to_bytes()
        assert again.ranges("t") == ([(1 << 32, END)] if whole else [(START, END)])
        assert len(again.to_bytes()) <= MOST_BYTES


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 1000)), max_size=60))
def test_numbers_are_in_the_order_of_the_keys(splits: list[tuple[int, int]]) -> None:
    """Keys are fractions of a line; each split puts one between two neighbours."""
    known = Boundaries(1, "")
    line = {START: 0.0, END: 1.0}
    for at, share in splits:
        numbers = sorted(line)
        after = numbers[at % (len(numbers) - 1)]
        until = known.after(after)
        number = known.place(after, until, b"%d" % share)
        if number is None:
            break
        key = line[after] + (line[until] - line[after]) * share / 1001
        known.add(number, repr(key).encode())
        line[number] = key
    numbers = sorted(line)
    assert [line[number] for number in numbers] == sorted(line.values())
    assert all(known.after(a) == b for a, b in pairwise(numbers))
    former = dict(known.keys)
    known.thin(2)
    assert known.id == 2
    for begin, end in pairwise(numbers):
        low, high = known.widened(begin, end)
        assert low <= begin
        assert high >= end
        assert {low, high} <= {START, END, *known.keys}
    assert known.keys.items() <= former.items()
