from __future__ import annotations

from datastores.mysql.decode.charset_tables import EUCJPMS_EXTENSION, UPPER_HALVES


def test_the_tables_are_whole() -> None:
    assert {name: len(upper) for name, upper in UPPER_HALVES.items()} == dict.fromkeys(UPPER_HALVES, 128)
    assert len(EUCJPMS_EXTENSION) == 106
    assert "?" not in EUCJPMS_EXTENSION
