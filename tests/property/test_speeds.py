"""Target rates, over any rates and caps."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from caravan.speeds import FASTEST, SLOWEST, Pace, Speeds, speeds

_rates = st.floats(0, 1e10)
_caps = st.one_of(st.just(0.0), st.floats(1, 1e10))
_behind = st.dictionaries(st.integers(2, 20), st.one_of(st.none(), st.integers(0, 1 << 40)), max_size=10)
_paces = st.floats(Pace.LEAST, Pace.MOST)


def _speeds(lead: float, behind: dict[int, int | None], one: float, total: float, pace: float) -> Speeds:
    return speeds(lead, behind, read_rate=one, total_read_rate=total, pace=pace)


@given(_rates, _behind, _caps, _caps, _paces)
def test_caps_are_kept_and_everybody_makes_progress(
    lead: float, behind: dict[int, int | None], one: float, total: float, pace: float
) -> None:
    told = _speeds(lead, behind, one, total, pace)
    assert told.others.keys() == behind.keys()
    for target in (told.lead, *told.others.values()):
        assert 0 < target <= (one or math.inf)
    if total:
        least = min(SLOWEST * lead, 0.9 * total)
        assert sum(told.others.values()) <= (total - least) * (1 + 1e-9), "what the lead reads is left to it"
        assert told.lead <= total


@given(_rates, _behind, _paces)
def test_within_the_caps_they_read_at_the_papers_multiple_of_a_busy_lead(
    lead: float, behind: dict[int, int | None], pace: float
) -> None:
    for target in _speeds(lead, behind, 0, 0, pace).others.values():
        assert target >= SLOWEST * lead, "it would never arrive"
        assert target <= max(FASTEST * lead, pace)


@given(_rates, st.integers(0, 1 << 40), st.integers(0, 1 << 40), _caps, _caps, _paces)
def test_the_further_behind_the_faster(lead: float, a: int, b: int, one: float, total: float, pace: float) -> None:
    told = _speeds(lead, {2: min(a, b), 3: max(a, b)}, one, total, pace)
    assert told.others[2] <= told.others[3] * (1 + 1e-9)


@given(_rates, _behind, _caps, st.floats(1e6, 1e10), _paces)
def test_what_the_cap_allows_is_used(
    lead: float, behind: dict[int, int | None], one: float, total: float, pace: float
) -> None:
    """Nobody waits for capacity that nobody is given."""
    free = _speeds(lead, behind, one, 0, pace).others
    told = _speeds(lead, behind, one, total, pace)
    kept = max(SLOWEST * lead, 0.1 * total)
    unused = total - min(kept, 0.9 * total) - sum(told.others.values())
    if unused > 1e-6 * total:
        assert told.others == free
