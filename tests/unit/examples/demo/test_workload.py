"""The demo's workload: the same for the same seed, and what the checker relies on."""

from __future__ import annotations

from itertools import islice

from examples.demo.workload import TABLES, Change, serial_of, transactions


def _changes(seed: int, count: int = 2000) -> list[Change]:
    return [change for transaction in islice(transactions(seed), count) for change in transaction]


def test_the_seed_decides_everything() -> None:
    assert _changes(3, 200) == _changes(3, 200)
    assert _changes(3, 200) != _changes(4, 200)


def test_serials_count_from_one_and_stand_in_the_values() -> None:
    changes = _changes(1)
    assert [change.serial for change in changes] == list(range(1, len(changes) + 1))
    assert all(serial_of(change.value) == change.serial for change in changes if change.value is not None)


def test_a_key_is_deleted_once_and_never_written_again() -> None:
    gone: set[tuple[str, bytes]] = set()
    for change in _changes(2):
        assert (change.table, change.key) not in gone
        if change.value is None:
            gone.add((change.table, change.key))
    assert gone


def test_every_table_is_used_and_keys_are_written_again() -> None:
    changes = _changes(5)
    assert {change.table for change in changes} == set(TABLES)
    users = [change.key for change in changes if change.table == "users"]
    assert len(set(users)) < len(users) / 2


def test_a_strange_value_has_no_serial() -> None:
    assert serial_of(b"short") == 0
