from __future__ import annotations

from datastores.mysql.decode import kinds


def test_no_two_kinds_are_the_same_and_the_mark_is_beside_every_length() -> None:
    values = {name: value for name, value in vars(kinds).items() if name.isupper()}
    assert values.pop("ASCII_SAFE") & 7 == 0
    assert len(set(values.values())) == len(values) == 25
