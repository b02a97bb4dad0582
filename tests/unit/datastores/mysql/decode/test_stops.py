from __future__ import annotations

from datastores.mysql.decode import stops


def test_no_two_reasons_to_stop_are_the_same() -> None:
    values = [value for name, value in vars(stops).items() if name.isupper()]
    assert len(set(values)) == len(values) == 9
