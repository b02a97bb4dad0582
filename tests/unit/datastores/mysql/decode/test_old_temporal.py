from __future__ import annotations

import pytest

from datastores.mysql.decode.old_temporal import DATETIME, TIME, TIMESTAMP, old_size, old_text

MIDDLE = 3_020_400


@pytest.mark.parametrize(
    ("which", "digits", "number", "text"),
    [
        (TIME, 1, MIDDLE * 10, "00:00:00.0"),
        (TIME, 3, (MIDDLE - 1) * 1000 - 5, "-00:00:01.005"),
        (TIME, 6, (MIDDLE + 3_020_399) * 10**6 + 999_999, "838:59:59.999999"),
        (TIME, 2, (MIDDLE + 3_020_400) * 100, None),
        (DATETIME, 4, 0, "0000-00-00 00:00:00.0000"),
        (DATETIME, 2, ((((2026 * 13 + 11) * 32 + 22) * 24 + 11) * 3600 + 45 * 60 + 46) * 100 + 7, "2026-11-22 11:45:46.07"),  # noqa: E501
        (DATETIME, 6, ((((9999 * 13 + 12) * 32 + 31) * 24 + 23) * 3600 + 3599) * 10**6 + 999_999, "9999-12-31 23:59:59.999999"),  # noqa: E501
        (DATETIME, 6, (10_000 * 13 * 32 * 24 * 3600) * 10**6, None),
        (TIMESTAMP, 1, 0, "0000-00-00 00:00:00.0"),
        (TIMESTAMP, 3, 1 << 16 | 5, "1970-01-01 00:00:01.005"),
        (TIMESTAMP, 5, 1 << 24 | 100_000, None),
    ],
)  # fmt: skip
def test_a_value_as_select_shows_it(which: int, digits: int, number: int, text: str | None) -> None:
    assert old_text(which, digits, number.to_bytes(old_size(which, digits), "big")) == text
