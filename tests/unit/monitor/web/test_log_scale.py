from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.web.log_scale import Distances, Scale
from wormhole.model.position import LogPosition


def at(file: int, offset: int, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, file, offset)


@pytest.mark.parametrize(
    ("known", "place", "behind"),
    [
        # Within the last file the distance is the difference; 0 where the end was looked at before the place.
        ([], at(7, 400), 600),
        ([], at(7, 1000), 0),
        ([], at(7, 1200), 0),
        ([], at(8, 5), 0),
        # A known place makes its whole file exact.
        ([(at(4, 300), 10_700)], at(4, 300), 10_700),
        ([(at(4, 300), 10_700)], at(4, 0), 11_000),
        ([(at(4, 300), 10_700)], at(4, 2_000), 9_000),
        # A file between known ones is estimated, and stays between them: 12,000 bytes in files 3 to 6.
        ([(at(3, 0), 13_000)], at(5, 0), 7_000),
        ([(at(3, 0), 13_000)], at(5, 1 << 40), 4_000),
        ([(at(3, 0), 13_000)], at(6, 0), 4_000),
        ([(at(3, 0), 13_000), (at(5, 500), 2_500)], at(4, 0), 8_000),
        # What is older than every known file, or of another incarnation, is not made up.
        ([(at(4, 300), 10_700)], at(2, 0), None),
        ([(at(4, 300), 10_700)], at(7, 10, incarnation=2), None),
        ([(at(4, 0, incarnation=0), 5)], at(4, 0), None),
    ],
)
def test_how_far_behind_a_place_is(
    known: list[tuple[LogPosition, int]], place: LogPosition, behind: int | None
) -> None:
    assert Distances(at(7, 1000), known).behind(place) == behind


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=2, max_size=8),
    known=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 10_000)), max_size=4),
    one=st.tuples(st.integers(0, 7), st.integers(0, 10_000)),
    other=st.tuples(st.integers(0, 7), st.integers(0, 10_000)),
)
def test_what_is_reported_is_exact_and_a_later_place_is_never_further_behind(
    sizes: list[int], known: list[tuple[int, int]], one: tuple[int, int], other: tuple[int, int]
) -> None:
    last = len(sizes) - 1

    def real(place: tuple[int, int]) -> tuple[LogPosition, int]:
        file = place[0] % len(sizes)
        offset = min(place[1], sizes[file])
        return at(file, offset), sum(sizes[file:]) - offset

    distances = Distances(at(last, sizes[last]), [real(place) for place in known])
    told = {real(place)[0].file for place in known} | {last}
    first, second = sorted([real(one)[0], real(other)[0]])
    near, far = distances.behind(second), distances.behind(first)
    # An estimate beside what is exact may be off by what it estimates.
    if near is not None and far is not None and (first.file in told) == (second.file in told):
        assert far >= near
    for place in (one, other):
        position, behind = real(place)
        if position.file in told:
            assert distances.behind(position) == behind


def test_the_line_ends_at_the_end_and_holds_the_oldest() -> None:
    scale = Scale.reaching(5 << 30)
    assert scale.at(0) == 1.0
    assert 0.0 < scale.at(5 << 30) < 0.5
    assert scale.at(scale.span) == pytest.approx(0.0)
    assert scale.at(scale.span * 10) == 0.0
    assert Scale.reaching(0).span == 1 << 20


def test_catching_up_moves_along_the_line() -> None:
    """A line that always began at the oldest would show the oldest standing still."""
    spans = {Scale.reaching(behind).span for behind in range(5 << 30, 6 << 30, 100 << 20)}
    assert len(spans) == 1
    scale = Scale.reaching(6 << 30)
    places = [scale.at(behind) for behind in range(6 << 30, 0, -(256 << 20))]
    assert places == sorted(places)
    assert places[-1] - places[0] > 0.2


@pytest.mark.parametrize("behind", [0, 1 << 20, 300 << 20, 5 << 30, 1 << 40])
def test_the_marks_are_few_and_apart(behind: int) -> None:
    scale = Scale.reaching(behind)
    marks = scale.marks()
    assert 1 <= len(marks) <= 6
    places = [scale.at(mark) for mark in marks]
    assert all(0.05 < place < 0.95 for place in places)
    assert places == sorted(places, reverse=True)
