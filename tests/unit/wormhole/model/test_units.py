"""Sizes, rates and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.units import format_size, parse_duration, parse_rate, parse_size, parse_time, rounded_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MiB", 256 << 20),
        ("1.5KiB", 1536),
        ("10 MB", 10_000_000),
        ("0B", 0),
        (4096, 4096),
        ("1TiB", 1 << 40),
        ("3kB", 3000),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "12", "MiB", "-1MiB", "1 mib", "1MiBs", "1e3MiB", "٣MiB", -1, 1.5, True, None, "9999TiB", 1 << 60]
)
def test_a_wrong_size_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(ValueError, match='"256MiB"'):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("40MiB/s", 40 << 20), ("40MiB", 40 << 20), (7, 7), ("1 MB / s", 1_000_000)]
)
def test_rates(text: object, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["40MiB/m", "/s", "fast", False, [], "1MiB/s/s", "9" * 400 + "MB/s"])
def test_a_wrong_rate_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(ValueError, match='"40MiB/s"'):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("1m", 60.0), ("1.5 h", 5400.0), ("2d", 172800.0), (3, 3.0), (0.5, 0.5), ("7us", 7e-6)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "1y", "1M", "-1s", -1, float("nan"), float("inf"), True, "400d", {}])
def test_a_wrong_duration_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(ValueError, match='"1m"'):
        parse_duration(text)


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("2026-05-01T12:00:00Z", 1_777_636_800_000_000),
        ("2026-05-01t14:00:00.000001+02:00", 1_777_636_800_000_001),
        ("2026-05-01 07:00:00-05:00", 1_777_636_800_000_000),
        ("2026-05-01", None),
        ("latest", None),
        ("0-1-17", None),
    ],
)
def test_times(text: str, us: int | None) -> None:
    assert parse_time(text) == us


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-05-01T12:00:00", "must say its zone"),
        ("2026-05-01T12:00Z", "must be a time such as"),
        ("2026-05-01T12:00:00 UTC", "must be a time such as"),
        ("2026-13-01T12:00:00Z", "is no time that exists"),
        ("2026-05-01T24:00:00Z", "is no time that exists"),
        ("2026-05-01T12:00:00+99:00", "is no time that exists"),
    ],
)
def test_times_that_are_not_clear(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_time(text)


def test_a_size_that_was_measured_has_about_three_digits() -> None:
    found = [rounded_size(count) for count in (87, 1536, 500_000, 72_307_953_664, 1 << 43)]
    assert found == ["87 B", "1.5 KiB", "488 KiB", "67.3 GiB", "8.0 TiB"]
